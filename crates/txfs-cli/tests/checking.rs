//! `txfs check`, for people and as JSON.

mod common;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use common::{Sandbox, users};

#[test]
fn a_sound_volume_and_a_damaged_one() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.sh("mkdir d; head -c 100000 /dev/urandom > d/file; cp d/file ../original").expect(0);
        sandbox.umount();
        let check = |options: &[&str]| sandbox.txfs(["check"]).args(options).arg(sandbox.volume()).done();
        let report: serde_json::Value = serde_json::from_str(&check(&["--json"]).expect(0).stdout).unwrap();
        assert_eq!((&report["clean"], &report["files"]), (&true.into(), &1.into()));
        assert!(check(&[]).expect(0).stdout.starts_with("clean: 1 file"));

        // One bit of the file's data.
        let content = fs::read(sandbox.path("home/original")).unwrap();
        let needle = &content[50_000..50_032];
        let segments = fs::read_dir(sandbox.volume()).unwrap().map(|entry| entry.unwrap().path());
        let (segment, place) = segments
            .filter_map(|path| {
                let bytes = fs::read(&path).ok()?;
                let place = bytes.windows(needle.len()).position(|window| window == needle)?;
                Some((path, place as u64))
            })
            .next()
            .unwrap();
        let file = OpenOptions::new().write(true).open(segment).unwrap();
        file.write_all_at(&[needle[0] ^ 1], place).unwrap();

        let damaged = check(&["--json"]).expect(65).says("problem");
        let report: serde_json::Value = serde_json::from_str(&damaged.stdout).unwrap();
        assert_eq!(report["clean"], false);
        let problems = report["problems"].as_array().unwrap();
        assert!(problems.iter().any(|problem| problem.to_string().contains("d/file")), "{report}");
        assert!(check(&[]).expect(65).stdout.contains("damaged:"));
        // Not served either.
        let cat = sandbox.txfs(["cat"]).arg(format!("{}:d/file", sandbox.volume().display())).done();
        assert!(cat.expect(65).stderr.contains("d/file"));
    }
}
