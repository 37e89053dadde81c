//! `txfs log`: the commits of `txfs run`, mounted and unmounted.

mod common;

use common::{Sandbox, users};
use serde_json::Value;

#[test]
fn runs_leave_an_entry_each() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let log = |options: &[&str]| {
            sandbox.txfs(["log"]).args(options).arg(sandbox.volume()).done().expect(0).stdout
        };
        assert!(log(&[]).contains("no recorded commits"));
        sandbox.sh("echo plain > plain").expect(0);
        sandbox.run(["-m", "first import"], "mkdir d; echo one > d/one; echo two > d/two").done().expect(0);
        sandbox.run([], "echo nothing > left; exit 3").done().expect(3);
        sandbox.run([], "true").done().expect(0);
        sandbox.run([], "rm plain").done().expect(0);

        let json: Value = serde_json::from_str(&log(&["--json"])).unwrap();
        let commits = json.as_array().unwrap();
        assert_eq!(commits.len(), 2, "{json}");
        assert!(commits[0]["command"].as_str().unwrap().contains("rm plain"), "{json}");
        assert_eq!(commits[1]["message"], "first import");
        assert_eq!(commits[1]["names"], 3);
        assert!(commits[1]["process"].as_u64().unwrap() > 1);
        assert!(commits[1]["time"].as_str().unwrap().starts_with("20"));
        let (newest, oldest) = (commits[0]["sequence"].as_u64(), commits[1]["sequence"].as_u64());
        assert!(newest > oldest);

        let text = log(&[]);
        assert!(text.contains("first import") && text.contains("rm plain"), "{text}");
        assert!(!log(&["-n", "1"]).contains("first import"));
        let before = newest.unwrap().to_string();
        assert!(!log(&["--before", &before]).contains("rm plain"));
        // From inside the mount without naming it.
        let here = sandbox.txfs(["log"]).directory(&sandbox.mountpoint()).done().expect(0).stdout;
        assert_eq!(here, text);

        sandbox.umount();
        assert_eq!(log(&[]), text, "it is in the volume");
        sandbox.check();
    }
}
