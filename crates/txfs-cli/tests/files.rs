//! `ls`, `cat`, `put` and `get`, on a volume that is mounted and on one that is not.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use common::{Done, Sandbox, User, users};

/// Everything that a tree can have, made by a script of the user.
fn make_tree(sandbox: &Sandbox) {
    let script = "
        mkdir -p tree/empty tree/deep/er/still 'tree/with space'
        echo hello > tree/file
        ln tree/file tree/deep/hard
        ln -s ../file tree/deep/soft
        ln -s /nowhere/at/all tree/dangling
        printf 'no newline' > 'tree/with space/a\tb'
        touch -d '2001-02-03 04:05:06.789012345 UTC' tree/old
        chmod 4750 tree/old
        chmod 1777 tree/empty
        mkfifo tree/pipe
        truncate -s 20M tree/sparse
        printf middle | dd of=tree/sparse bs=1 seek=10000000 conv=notrunc 2>/dev/null
        head -c 3000000 /dev/urandom > tree/large
        setfattr -n user.colour -v blue tree/file
        setfattr -n user.colour -v green tree/deep
        touch -d '1999-12-31 23:59:59 UTC' tree/deep/er tree/deep tree";
    sandbox.command("sh").args(["-ec", script]).done().expect(0);
}

/// One line for everything in a tree: what `put` and `get` must keep.
fn describe(tree: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut queue = vec![tree.to_path_buf()];
    while let Some(path) = queue.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(tree).unwrap().display().to_string();
        let content = if metadata.is_file() {
            let sum = Command::new("sha256sum").arg("-z").arg(&path).output().unwrap().stdout;
            String::from_utf8_lossy(&sum[..64]).into_owned()
        } else if metadata.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            String::new()
        };
        let links = if metadata.is_dir() { 0 } else { metadata.nlink() };
        let size = if metadata.is_dir() { 0 } else { metadata.size() };
        lines.push(format!(
            "{name} {:o} {links} {size} {}.{:09} {} {} {content}",
            metadata.mode(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.uid(),
            metadata.gid(),
        ));
        if metadata.is_dir() {
            queue.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    lines.sort();
    lines
}

fn xattr(path: &Path) -> String {
    let output =
        Command::new("getfattr").args(["--only-values", "-n", "user.colour"]).arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn place(sandbox: &Sandbox, path: &str) -> String {
    format!("{}:{path}", sandbox.volume().display())
}

fn round_trip(sandbox: &Sandbox, name: &str) {
    let put = sandbox.txfs(["put", "tree"]).arg(place(sandbox, &format!("/{name}"))).done().expect(0);
    assert_eq!((put.stdout.as_str(), put.stderr.as_str()), ("", ""));
    let get = sandbox.txfs(["get"]).arg(place(sandbox, &format!("/{name}"))).arg(name).done().expect(0);
    assert_eq!((get.stdout.as_str(), get.stderr.as_str()), ("", ""));
    let (original, copy) = (sandbox.path("home/tree"), sandbox.path("home").join(name));
    assert_eq!(describe(&original), describe(&copy));
    assert_eq!((xattr(&copy.join("file")), xattr(&copy.join("deep"))), ("blue".into(), "green".into()));
    let inode = |path: &str| fs::metadata(copy.join(path)).unwrap().ino();
    assert_eq!(inode("file"), inode("deep/hard"));
    let sparse = fs::metadata(copy.join("sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 1 << 20, "the holes are filled: {} blocks", sparse.blocks());
}

#[test]
fn a_tree_survives_put_and_get() {
    for user in users() {
        let sandbox = Sandbox::new(user);
        sandbox.mkfs();
        make_tree(&sandbox);
        round_trip(&sandbox, "unmounted");
        sandbox.check();
        sandbox.mount();
        round_trip(&sandbox, "mounted");
        // What was put while it was mounted is there, and is one commit with all of it.
        assert_eq!(sandbox.read("cat mounted/deep/soft"), "hello\n");
        sandbox.umount();
        sandbox.check();
    }
}

#[test]
fn names_are_chosen_as_by_cp() {
    let sandbox = Sandbox::new(User::Same);
    sandbox.mkfs();
    let script = "mkdir -p one two/inner; echo 1 > one/a; echo 2 > two/b; echo 3 > c";
    sandbox.command("sh").args(["-ec", script]).done().expect(0);
    let put =
        |sources: &[&str], path: &str| sandbox.txfs(["put"]).args(sources).arg(place(&sandbox, path)).done();
    let ls = |path: &str| sandbox.txfs(["ls"]).arg(place(&sandbox, path)).done().expect(0).stdout;
    put(&["one"], "/").expect(0);
    put(&["one"], "/renamed").expect(0);
    put(&["one", "two", "c"], "/renamed").expect(0);
    put(&["two/."], "/").expect(0);
    put(&["c"], "/one/a").expect(0);
    assert_eq!(ls("/"), "b\ninner\none\nrenamed\n");
    assert_eq!(ls("/renamed"), "a\nc\none\ntwo\n");
    assert_eq!(sandbox.txfs(["cat"]).arg(place(&sandbox, "one/a")).done().expect(0).stdout, "3\n");
    // Wrong ones change nothing.
    put(&["one"], "/b").expect(1).says("not a directory");
    put(&["c"], "/inner/none/").expect(66);
    put(&["c"], "/b/under-a-file").expect(66);
    put(&["c", "one"], "/none").expect(66);
    put(&["none"], "/").expect(66).says("No such file or directory");
    put(&["c"], "/renamed/one").expect(0);
    assert_eq!(ls("/"), "b\ninner\none\nrenamed\n");
    sandbox.check();
}

#[test]
fn an_import_that_fails_leaves_nothing() {
    for user in [User::Same, User::Nobody].into_iter().filter(|user| users().contains(user)) {
        let sandbox = Sandbox::new(user);
        sandbox.mkfs();
        let script = "mkdir -p tree/a tree/z; echo 1 > tree/a/file; echo 2 > tree/z/file";
        sandbox.command("sh").args(["-ec", script]).done().expect(0);
        sandbox.txfs(["put", "tree/a"]).arg(place(&sandbox, "/kept")).done().expect(0);
        // The last thing in the tree stands against a directory of the same name.
        let script = "mkdir -p tree/kept; mkdir -p other; echo 3 > other/first; echo 4 > other/kept";
        sandbox.command("sh").args(["-ec", script]).done().expect(0);
        for mounted in [false, true] {
            if mounted {
                sandbox.mount();
            }
            let put = sandbox.txfs(["put", "other/first", "other/kept"]).arg(place(&sandbox, "/")).done();
            put.expect(1).says("kept");
            let ls = sandbox.txfs(["ls"]).arg(sandbox.volume()).done().expect(0);
            assert_eq!(ls.stdout, "kept\n");
        }
    }
}

#[test]
fn listings() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.sh("mkdir -p d/e; echo hello > d/file; chmod 640 d/file; ln -s file d/link; printf x > \"$(printf 'odd\\nname')\"").expect(0);
        for mounted in [true, false] {
            if !mounted {
                sandbox.umount();
            }
            let ls = |options: &[&str], path: &str| {
                sandbox.txfs(["ls"]).args(options).arg(place(&sandbox, path)).done().expect(0).stdout
            };
            assert_eq!(ls(&[], ""), "d\nodd\\nname\n");
            assert_eq!(ls(&["-R"], "/"), "/:\nd\nodd\\nname\n\n/d:\ne\nfile\nlink\n\n/d/e:\n");
            assert_eq!(ls(&[], "d/file"), "d/file\n");
            let long = ls(&["-l"], "d");
            assert!(long.contains("-rw-r-----") && long.contains("link -> file"), "{long}");
            let json = ls(&["--json", "-R"], "/d");
            let entries: Vec<serde_json::Value> =
                json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(entries.len(), 3, "{json}");
            let file = entries.iter().find(|entry| entry["path"] == "d/file").unwrap();
            assert_eq!(
                (&file["kind"], &file["mode"], &file["size"]),
                (&"file".into(), &"0640".into(), &6.into())
            );
            let cat =
                sandbox.txfs(["cat"]).arg(place(&sandbox, "d/link")).arg(place(&sandbox, "/d/file")).done();
            assert_eq!(cat.expect(0).stdout, "hello\nhello\n");
            sandbox.txfs(["cat"]).arg(place(&sandbox, "d")).done().expect(1).says("directory");
            sandbox.txfs(["cat"]).arg(place(&sandbox, "none")).done().expect(66).says("none");
            sandbox.txfs(["ls"]).arg(place(&sandbox, "../../../etc")).done().expect(66);
        }
    }
}

#[test]
fn the_mount_point_names_the_volume_too() {
    let sandbox = Sandbox::mounted(User::Same);
    sandbox.sh("echo hello > file").expect(0);
    assert_eq!(sandbox.txfs(["ls"]).arg(sandbox.mountpoint()).done().expect(0).stdout, "file\n");
    let place = format!("{}:file", sandbox.mountpoint().display());
    assert_eq!(sandbox.txfs(["cat", &place]).done().expect(0).stdout, "hello\n");
}

#[test]
fn large_and_odd_files() {
    let sandbox = Sandbox::new(User::Same);
    sandbox.mkfs();
    let path = sandbox.path("home/big");
    let file = File::create(&path).unwrap();
    file.write_all_at(&vec![7; 5 << 20], 3).unwrap();
    file.write_all_at(b"end", (1 << 33) - 3).unwrap();
    sandbox.txfs(["put", "big"]).arg(place(&sandbox, "/")).done().expect(0);
    sandbox.txfs(["get"]).arg(place(&sandbox, "/big")).arg("copy").done().expect(0);
    let copy = File::open(sandbox.path("home/copy")).unwrap();
    assert_eq!(copy.metadata().unwrap().len(), 1 << 33);
    assert!(copy.metadata().unwrap().blocks() * 512 < 8 << 20);
    let mut end = [0; 3];
    copy.read_exact_at(&mut end, (1 << 33) - 3).unwrap();
    assert_eq!(&end, b"end");
    let mut start = vec![0; 5 << 20];
    copy.read_exact_at(&mut start, 3).unwrap();
    assert!(start.iter().all(|&byte| byte == 7));
}

fn stdout_json(done: &Done) -> serde_json::Value {
    serde_json::from_str(&done.stdout).unwrap()
}

/// A script in the user's home directory.
fn at_home(sandbox: &Sandbox, script: &str) {
    sandbox.command("sh").args(["-ec", script]).done().expect(0);
}

#[test]
fn gc_gives_the_space_of_deleted_files_back() {
    let Some(user) = users().into_iter().next() else { return };
    let sandbox = Sandbox::new(user);
    sandbox.mkfs();
    at_home(&sandbox, "head -c 40000000 /dev/urandom > large; : > empty");
    for name in ["kept", "gone", "last"] {
        sandbox
            .txfs(["put", "large"])
            .arg(format!("{}:/{name}", sandbox.volume().display()))
            .done()
            .expect(0);
    }
    let size = || -> u64 {
        let entries = fs::read_dir(sandbox.volume()).unwrap().map(|entry| entry.unwrap());
        entries.map(|entry| entry.metadata().unwrap().len()).sum()
    };
    let before = size();
    // There is no `txfs rm`: what is replaced with nothing is gone as well.
    sandbox.txfs(["put", "empty"]).arg(format!("{}:/gone", sandbox.volume().display())).done().expect(0);
    let report = stdout_json(&sandbox.txfs(["gc", "--json"]).arg(sandbox.volume()).done().expect(0));
    assert!(report["segments_removed"].as_u64().unwrap() >= 2, "{report}");
    assert!(size() < before - (24 << 20), "{before} -> {}", size());
    let stat = stdout_json(&sandbox.txfs(["stat", "--json"]).arg(sandbox.volume()).done().expect(0));
    assert_eq!(stat["space"]["live_bytes"], 80_000_000, "{stat}");
    sandbox.check();

    sandbox.mount();
    at_home(&sandbox, "head -c 30000000 /dev/urandom > mount/more && rm mount/more && sync mount/kept");
    sandbox.txfs(["gc"]).arg(sandbox.mountpoint()).done().expect(0);
    at_home(&sandbox, "cmp large mount/kept && cmp large mount/last");
    sandbox.umount();
    sandbox.check();
}

#[test]
fn a_size_limit_holds() {
    let Some(user) = users().into_iter().next() else { return };
    let sandbox = Sandbox::new(user);
    let small = sandbox.txfs(["mkfs", "--size", "3M", "--segment-size", "1M"]).arg(sandbox.volume()).done();
    assert_ne!(small.says("less than 8 segments").code, Some(0));
    sandbox.txfs(["mkfs", "--size", "64M", "--preallocate", "8M"]).arg(sandbox.volume()).done().expect(0);
    at_home(&sandbox, "head -c 44000000 /dev/urandom > fits; head -c 15000000 /dev/urandom > more");
    let at = |name: &str| format!("{}:/{name}", sandbox.volume().display());
    sandbox.txfs(["put", "fits"]).arg(at("a")).done().expect(0);
    assert_ne!(sandbox.txfs(["put", "more"]).arg(at("b")).done().code, Some(0));
    // What goes makes room, and what is replaced again and again has to be cleaned away for it.
    at_home(&sandbox, ": > empty");
    sandbox.txfs(["put", "empty"]).arg(at("a")).done().expect(0);
    for _ in 0..6 {
        sandbox.txfs(["put", "more"]).arg(at("b")).done().expect(0);
    }
    sandbox.check();
}
