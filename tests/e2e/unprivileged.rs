//! An ordinary user: everything without root, through fusermount3 and a user namespace.

use std::process::Command;

use txfs_e2e::{answer_of, is_root, txfs_binary, work_directory};

/// The whole life of a volume, as an ordinary user would type it.
const SCRIPT: &str = r#"
    cd "$PLACE"
    mkdir mount
    "$TXFS" mkfs volume
    "$TXFS" mount volume mount
    trap '"$TXFS" umount mount 2>/dev/null || fusermount3 -uz mount' EXIT
    echo old >mount/file
    cd mount

    "$TXFS" run -- sh -euc 'id -u; echo new >file; mkdir made; cat file'
    cat file
    ! "$TXFS" run -- sh -euc 'echo never >file; exit 9' || exit 50
    cat file
    touch -d '2001-02-03 UTC' made; chmod 700 made; ln file link; stat -c '%h %U' file

    # a conflict: somebody else commits in the middle
    set +e
    "$TXFS" run -- sh -euc '"$0" run --mount "$1" -- true; cat file >/dev/null; echo mine >>file; : >../waiting; while [ ! -e ../go ]; do sleep 0.01; done' "$TXFS" . 2>../conflict &
    while [ ! -e ../waiting ]; do sleep 0.01; done
    echo theirs >file
    : >../go
    wait $!
    echo "conflict: $?"
    set -e
    cat file

    cd ..
    "$TXFS" tx list mount
    "$TXFS" umount mount
    trap - EXIT
    "$TXFS" check volume >/dev/null
    "$TXFS" run --volume volume --at mount -- sh -euc 'cat mount/file; echo private >mount/file'
    "$TXFS" cat volume:file
"#;

#[test]
fn everything_works_without_root() {
    let directory = work_directory("user");
    let place = directory.path().join("place");
    std::fs::create_dir(&place).expect("a directory");
    let copy = directory.path().join("txfs");
    std::fs::copy(txfs_binary(), &copy).expect("a copy of the command");
    let mut command = if is_root() {
        answer_of(Command::new("chown").arg("nobody").arg(&place)).expect_code(0);
        // some machines keep /dev/fuse for root; everybody may open it as a rule (udev's default), so do that here,
        // for this test only
        let script = "
            mkdir \"$DEVICES\"; mknod -m 666 \"$DEVICES/fuse\" c 10 229
            mount --bind \"$DEVICES/fuse\" /dev/fuse
            exec setpriv --reuid nobody --regid nogroup --clear-groups sh -euc \"$0\"
        ";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-euc", script, SCRIPT]).env("DEVICES", directory.path().join("devices"));
        command
    } else {
        let mut command = Command::new("sh");
        command.args(["-euc", SCRIPT]);
        command
    };
    command.env("PLACE", &place).env("TXFS", &copy).env("HOME", &place);
    let answer = answer_of(&mut command).expect_code(0);
    let user = if is_root() {
        "nobody".to_owned()
    } else {
        answer_of(Command::new("id").arg("-un")).out.trim().to_owned()
    };
    let number = answer_of(Command::new("id").args(["-u", &user])).out.trim().to_owned();
    let expected = format!("{number}\nnew\nnew\nnew\n2 {user}\nconflict: 75\ntheirs\n");
    assert!(answer.out.starts_with(&expected), "{}\n{}", answer.out, answer.err);
    assert!(answer.out.ends_with("theirs\nprivate\n"), "{}\n{}", answer.out, answer.err);
}
