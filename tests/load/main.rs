//! One writer of the load under which the mount process is killed.
//!
//! `txfs-e2e-load KIND POINT ACKNOWLEDGED WORKER`: works on the mount at POINT until it fails (the mount is gone), and
//! appends a line to the file ACKNOWLEDGED, outside the volume, for everything that it was told is durable. Started
//! again, it goes on behind the last line.
//!
//! | kind | does | acknowledges |
//! | --- | --- | --- |
//! | `files` | creates files, `fsync` of each | number |
//! | `pages` | overwrites its own pages of a shared file, `fdatasync` | page and version |
//! | `names` | writes beside and renames over, `fsync` of the directory | version |
//! | `careless` | writes beside and renames over, no `fsync` at all | nothing |
//! | `transactions` | `txfs run` of a script that changes five things at once | number |

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use txfs_e2e::txfs_binary;

const PAGE_BYTES: usize = 4096;
/// Pages of each worker in the shared file; they alternate, so that neighbours belong to different workers.
const PAGES: u64 = 64;
const WORKERS: u64 = 4;

struct Worker {
    point: PathBuf,
    number: u64,
    acknowledged: File,
    last: u64,
}

impl Worker {
    fn acknowledge(&mut self, line: &str) -> Result<(), Box<dyn Error>> {
        // one write, so that a line is whole or not there
        self.acknowledged.write_all(format!("{line}\n").as_bytes())?;
        Ok(())
    }

    fn files(&mut self) -> Result<(), Box<dyn Error>> {
        let directory = self.point.join(format!("files-{}", self.number));
        fs::create_dir_all(&directory)?;
        for number in self.last + 1.. {
            let mut file = File::create(directory.join(number.to_string()))?;
            file.write_all(txfs_e2e_content(self.number, number).as_bytes())?;
            file.sync_all()?;
            self.acknowledge(&number.to_string())?;
        }
        Ok(())
    }

    fn pages(&mut self) -> Result<(), Box<dyn Error>> {
        let path = self.point.join("pages");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        for version in self.last + 1.. {
            let page = (version * 7919) % PAGES * WORKERS + self.number;
            let content = version.to_le_bytes().repeat(PAGE_BYTES / 8);
            file.write_all_at(&content, page * PAGE_BYTES as u64)?;
            file.sync_data()?;
            self.acknowledge(&format!("{page} {version}"))?;
        }
        Ok(())
    }

    fn names(&mut self, careful: bool) -> Result<(), Box<dyn Error>> {
        let kind = if careful { "names" } else { "careless" };
        let directory = self.point.join(format!("{kind}-{}", self.number));
        fs::create_dir_all(&directory)?;
        for version in self.last + 1.. {
            let beside = directory.join("new");
            fs::write(&beside, txfs_e2e_content(self.number, version))?;
            fs::rename(&beside, directory.join("current"))?;
            if careful {
                File::open(&directory)?.sync_all()?;
                self.acknowledge(&version.to_string())?;
            }
        }
        Ok(())
    }

    fn transactions(&mut self) -> Result<(), Box<dyn Error>> {
        let script = r#"
            mkdir -p "transactions-$1"; cd "transactions-$1"
            echo "$2" >first
            echo "$2" >second
            rm -f state-*
            : >"state-$2"
            chmod "$(printf '0%o' $(($2 % 512)))" "state-$2"
        "#;
        for number in self.last + 1.. {
            let status = Command::new(txfs_binary())
                .args(["run", "--mount"])
                .arg(&self.point)
                .args(["--", "sh", "-euc", script, "sh"])
                .args([self.number.to_string(), number.to_string()])
                .current_dir(&self.point)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()?;
            if !status.success() {
                return Err(format!("transaction {number}: {status}").into());
            }
            self.acknowledge(&number.to_string())?;
        }
        Ok(())
    }
}

/// What a file with this number holds: between one line and some pages.
fn txfs_e2e_content(worker: u64, number: u64) -> String {
    format!("{worker} {number}\n").repeat(1 + (number as usize * 37) % 2000)
}

/// The last number acknowledged before, 0 at first.
fn last_number(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.split(' ').next_back()?.parse().ok()).max().unwrap_or(0)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, point, acknowledged, number] = arguments.as_slice() else {
        eprintln!("usage: txfs-e2e-load KIND POINT ACKNOWLEDGED WORKER");
        return ExitCode::from(2);
    };
    let path = Path::new(acknowledged);
    let last = last_number(path);
    let file = match OpenOptions::new().create(true).append(true).open(path) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("{acknowledged}: {error}");
            return ExitCode::from(2);
        }
    };
    let number = number.parse().unwrap_or(0);
    let mut worker = Worker { point: PathBuf::from(point), number, acknowledged: file, last };
    let outcome = match kind.as_str() {
        "files" => worker.files(),
        "pages" => worker.pages(),
        "names" => worker.names(true),
        "careless" => worker.names(false),
        "transactions" => worker.transactions(),
        _ => Err("no such kind".into()),
    };
    // it only ever ends with the mount; what stopped it is of interest when that comes too early
    eprintln!(
        "{kind} {number}: {}",
        outcome.err().map_or_else(|| "ended".to_owned(), |error| error.to_string())
    );
    ExitCode::SUCCESS
}
