//! A commit in two phases together with PostgreSQL, whose coordinator is killed at each point between the phases: afterwards both
//! sides have committed, or neither has.
//!
//! The coordinator is a process of its own, a shell script as people write them. What is to become of a
//! transaction is decided by one file, which it makes durable between the phases: recovery commits what is decided, and
//! aborts what is not. That is all that a coordinator has to remember.
//!
//! Where PostgreSQL is not installed (Debian: `postgresql`) the test says so and ends.

use std::path::{Path, PathBuf};
use std::process::Command;

use txfs_e2e::{Background, Fixture, answer_of, contents, is_root};

/// A server of its own, in a directory of its own, without a network.
struct Postgres {
    programs: PathBuf,
    directory: PathBuf,
}

impl Postgres {
    fn programs() -> Option<PathBuf> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let mut found: Vec<PathBuf> = versions.flatten().map(|entry| entry.path().join("bin")).collect();
        found.retain(|path| path.join("pg_ctl").exists());
        found.sort();
        found.pop()
    }

    /// A program of the server; it refuses to run as root.
    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = match is_root() {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
                command
            }
            false => Command::new(program),
        };
        command.current_dir("/").env("LC_ALL", "C");
        command
    }

    fn start(directory: &Path) -> Option<Postgres> {
        let postgres = Postgres { programs: Postgres::programs()?, directory: directory.to_path_buf() };
        std::fs::create_dir(directory).expect("a directory");
        if is_root() {
            answer_of(Command::new("chown").arg("postgres").arg(directory)).expect_code(0);
        }
        let data = directory.join("data");
        answer_of(postgres.command("initdb").args(["-A", "trust", "-U", "postgres", "-N", "-D"]).arg(&data))
            .expect_code(0);
        postgres.run();
        Some(postgres)
    }

    fn run(&self) {
        let options =
            format!("-k {} -c listen_addresses= -c max_prepared_transactions=9", self.directory.display());
        let log = self.directory.join("log");
        let mut command = self.command("pg_ctl");
        command
            .args(["start", "-w", "-o", &options, "-l"])
            .arg(log)
            .arg("-D")
            .arg(self.directory.join("data"));
        answer_of(&mut command).expect_code(0);
    }

    /// The server dies as it does when the power goes.
    fn crash(&self) {
        let mut command = self.command("pg_ctl");
        command.args(["stop", "-w", "-m", "immediate", "-D"]).arg(self.directory.join("data"));
        answer_of(&mut command).expect_code(0);
    }

    fn sql(&self, statement: &str) -> String {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-h"]).arg(&self.directory).args([
            "-U",
            "postgres",
            "-X",
            "-qAt",
            "-v",
            "ON_ERROR_STOP=1",
        ]);
        answer_of(command.args(["-c", statement])).expect_code(0).out.trim().to_owned()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let mut command = self.command("pg_ctl");
        command.args(["stop", "-w", "-m", "immediate", "-D"]).arg(self.directory.join("data"));
        let _ = command.output();
    }
}

/// The two phases; at the point that `$STOP` names it waits to be killed.
const COORDINATOR: &str = r#"
at() { echo "$1" >>"$OUTSIDE/reached"; if [ "$STOP" = "$1" ]; then : >"$OUTSIDE/stopped"; sleep 600; fi; }
at begin
"$TXFS" run --mount "$POINT" --prepare "$ORDER" -- sh -euc "echo $ORDER >>'$POINT/orders'; echo paid >'$POINT/$ORDER'"
at files-prepared
$PSQL -c "BEGIN; INSERT INTO orders VALUES ('$ORDER'); PREPARE TRANSACTION '$ORDER'"
at both-prepared
echo commit >"$OUTSIDE/decided.new"; sync "$OUTSIDE/decided.new"; mv "$OUTSIDE/decided.new" "$OUTSIDE/decided"; sync "$OUTSIDE"
at decided
$PSQL -c "COMMIT PREPARED '$ORDER'"
at database-committed
"$TXFS" tx commit "$ORDER" "$POINT"
at done
"#;

/// What a coordinator does when it starts: ends what was left, as was decided.
const RECOVERY: &str = r#"
if [ -e "$OUTSIDE/decided" ]; then verb=COMMIT; tx=commit; else verb=ROLLBACK; tx=abort; fi
for order in $($PSQL -c "SELECT gid FROM pg_prepared_xacts"); do $PSQL -c "$verb PREPARED '$order'"; done
for order in $("$TXFS" tx list "$POINT" | awk '$1 == "prepared" { print $0 }' | grep -o 'order-[0-9]*' | sort -u); do
    "$TXFS" tx "$tx" "$order" "$POINT"
done
"#;

const POINTS: [&str; 7] =
    ["begin", "files-prepared", "both-prepared", "decided", "database-committed", "done", "nowhere"];

#[test]
fn both_sides_commit_or_neither_does_wherever_the_coordinator_is_killed() {
    let mut fixture = Fixture::mounted("two-phase");
    let Some(postgres) = Postgres::start(&fixture.directory().join("postgres")) else {
        eprintln!("skipped: PostgreSQL is not installed (Debian: postgresql)");
        return;
    };
    postgres.sql("CREATE TABLE orders (name text PRIMARY KEY)");
    fixture.script(": >orders").expect_code(0);
    let (mut expected, mut crashes) = (Vec::new(), 0);
    for (number, stop) in POINTS.into_iter().enumerate() {
        let order = format!("order-{number}");
        for file in ["decided", "stopped", "reached"] {
            let _ = std::fs::remove_file(fixture.outside(file));
        }
        let shell = |fixture: &Fixture, script: &str| {
            let psql = postgres.programs.join("psql");
            let psql = format!(
                "{} -h {} -U postgres -X -qAt -v ON_ERROR_STOP=1",
                psql.display(),
                postgres.directory.display()
            );
            let mut command = Command::new("setsid");
            command.args(["sh", "-euc", script]).env("OUTSIDE", fixture.outside("")).env("STOP", stop);
            command.env("ORDER", &order).env("POINT", fixture.point()).env("PSQL", psql);
            command.env("TXFS", txfs_e2e::txfs_binary()).current_dir("/");
            command
        };
        let mut coordinator = Background::start(&mut shell(&fixture, COORDINATOR));
        txfs_e2e::wait_for("the coordinator to get there", || {
            fixture.outside("stopped").exists() || !coordinator.is_running()
        });
        if stop == "nowhere" {
            coordinator.finish_soon().expect_code(0);
        } else {
            assert!(coordinator.is_running(), "{stop}: {:?}", coordinator.finish());
            answer_of(Command::new("kill").args(["-9", "--", &format!("-{}", coordinator.pid())]))
                .expect_code(0);
            let _ = coordinator.finish();
        }
        let decided = fixture.outside("decided").exists();
        assert_eq!(decided, POINTS.iter().position(|point| *point == "decided") <= Some(number), "{stop}");
        if matches!(stop, "both-prepared" | "database-committed") {
            // With both sides crashing as well.
            postgres.crash();
            fixture.kill_mount();
            postgres.run();
            fixture.mount(&[]);
            crashes += 1;
        }
        if matches!(stop, "both-prepared" | "decided") {
            // Until it is ended nobody gets in between.
            let refused = fixture.script("LC_ALL=C; export LC_ALL; echo x | tee -a orders");
            assert!(refused.err.contains("busy"), "{stop}: {refused:?}");
        }
        answer_of(&mut shell(&fixture, RECOVERY)).expect_code(0);
        if decided {
            expected.push(order.clone());
        }
        let rows = postgres.sql("SELECT name FROM orders ORDER BY name");
        let rows: Vec<&str> = rows.lines().collect();
        let lines = contents(fixture.path("orders"));
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!((&rows, &lines), (&expected.iter().map(String::as_str).collect(), &rows), "{stop}");
        assert_eq!(fixture.path(&order).exists(), decided, "{stop}");
    }
    assert_eq!((expected.len(), crashes), (4, 2));
    fixture.unmount();
    fixture.check();
}
