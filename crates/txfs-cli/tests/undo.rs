//! `txfs undo` and `txfs diff`, on a mount and on a volume.

mod common;

use common::{Sandbox, users};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text:?}"))
}

/// The number of the newest recorded commit.
fn newest(sandbox: &Sandbox) -> String {
    let log = sandbox.txfs(["log", "--json", "-n", "1"]).arg(sandbox.volume()).done().expect(0).stdout;
    json(&log)[0]["sequence"].to_string()
}

#[test]
fn a_run_is_undone_on_the_mount_and_on_the_volume() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox
            .sh("mkdir d; echo old > d/file; echo gone > gone; ln -s gone link; echo other > other")
            .expect(0);
        sandbox
            .run([], "echo new > d/file; rm gone link; echo made > made; chmod 600 other")
            .done()
            .expect(0);
        let first = newest(&sandbox);
        let shown = sandbox.txfs(["diff", &first]).arg(sandbox.volume()).done().expect(0).stdout;
        for line in ["modified d/file", "removed  gone", "removed  link", "created  made", "changed  other"] {
            assert!(shown.contains(line), "{line} is not in\n{shown}");
        }

        let dry = sandbox.txfs(["undo", "--dry-run", &first]).arg(sandbox.volume()).done().expect(0).stdout;
        assert!(dry.contains("created  gone") && dry.contains("removed  made"), "{dry}");
        assert_eq!(sandbox.sh("cat d/file").expect(0).stdout, "new\n");

        // Without naming the mount. What the kernel has cached is told of it.
        let here = sandbox.txfs(["undo", &first]).directory(&sandbox.mountpoint()).done().expect(0).stdout;
        assert!(here.contains("is undone"), "{here}");
        let state = sandbox.sh("cat d/file gone link; ls; stat -c %a other").expect(0).stdout;
        assert_eq!(state, "old\ngone\ngone\nd\ngone\nlink\nother\n644\n");

        // Undone is undone: the undo is in the way, and says so.
        let again = sandbox.txfs(["undo", &first]).arg(sandbox.volume()).done().expect(75);
        assert!(
            again.stderr.contains("in the way") && again.stderr.contains("changed by commit"),
            "{}",
            again.stderr
        );
        let conflict =
            sandbox.txfs(["undo", "--json", &first]).arg(sandbox.volume()).done().expect(75).stdout;
        assert_eq!(json(&conflict)["outcome"], "conflict");
        assert!(!json(&conflict)["conflicts"].as_array().unwrap().is_empty(), "{conflict}");

        let second = newest(&sandbox);
        let stat = sandbox.txfs(["stat", "--json"]).arg(sandbox.volume()).done().expect(0).stdout;
        let history = &json(&stat)["history"];
        assert_eq!((history["commits"].as_u64(), history["undoable"].as_u64()), (Some(2), Some(2)));
        assert!(history["kept_bytes"].as_u64().unwrap() > 0 && history["limit_bytes"].as_u64().unwrap() > 0);

        sandbox.umount();
        let undone = sandbox.txfs(["undo", "--json", &second]).arg(sandbox.volume()).done().expect(0).stdout;
        assert_eq!(json(&undone)["outcome"], "undone");
        let changes = sandbox.txfs(["diff", "--json", &second]).arg(sandbox.volume()).done().expect(0).stdout;
        assert!(json(&changes).as_array().unwrap().len() >= 4, "{changes}");
        let both = format!("{}..{}", first, newest(&sandbox));
        let both = sandbox.txfs(["diff", &both]).arg(sandbox.volume()).done().expect(0).stdout;
        assert!(both.contains("modified d/file"), "{both}");
        sandbox.check();
        sandbox.mount();
        assert_eq!(sandbox.sh("cat d/file made; ls").expect(0).stdout, "new\nmade\nd\nmade\nother\n");
        let wrong = sandbox.txfs(["undo", "999999"]).arg(sandbox.volume()).done().expect(1);
        assert!(wrong.stderr.contains("not in the history"), "{}", wrong.stderr);
        sandbox.txfs(["diff", "7..3"]).done().expect(2);
        sandbox.umount();
    }
}
