//! Isolation between processes: who sees what when, and who conflicts with whom.

use txfs_e2e::{Answer, Fixture, answer_of};

/// Two transactions side by side: both have done their work before either commits; the first commits first.
fn side_by_side(fixture: &Fixture, first: &str, second: &str) -> (Answer, Answer) {
    let one = fixture.start_script("one", &format!("{first}\npause"));
    let two = fixture.start_script("two", &format!("{second}\npause"));
    fixture.wait_paused("one");
    fixture.wait_paused("two");
    fixture.let_go("one");
    let one = one.finish_soon();
    fixture.let_go("two");
    (one, two.finish_soon())
}

const PAGE_OF: &str = "page() { head -c 4096 /dev/zero | tr '\\0' \"$2\" | dd of=\"$1\" bs=4096 seek=\"$3\" conv=notrunc status=none; }\n";

#[test]
fn different_pages_of_one_file_both_commit() {
    let mut fixture = Fixture::mounted("pages");
    fixture.script("head -c 65536 /dev/zero >file").expect_code(0);
    let (one, two) =
        side_by_side(&fixture, &format!("{PAGE_OF} page file a 3"), &format!("{PAGE_OF} page file b 4"));
    one.expect_code(0);
    two.expect_code(0);
    fixture.remount();
    let file = fixture.text("file");
    assert_eq!(&file[3 * 4096..4 * 4096], "a".repeat(4096));
    assert_eq!(&file[4 * 4096..5 * 4096], "b".repeat(4096));
    assert_eq!(file.len(), 65536);
}

#[test]
fn same_page_second_conflicts() {
    let mut fixture = Fixture::mounted("page");
    fixture.script("mkdir data; head -c 65536 /dev/zero >data/file").expect_code(0);
    let (one, two) = side_by_side(
        &fixture,
        &format!("{PAGE_OF} page data/file a 3"),
        &format!("{PAGE_OF} page data/file b 3"),
    );
    one.expect_code(0);
    two.expect_code(75).expect_message("conflict").expect_message("data/file");
    fixture.remount();
    assert_eq!(&fixture.text("data/file")[3 * 4096..4 * 4096], "a".repeat(4096));
}

#[test]
fn different_names_in_one_directory_both_commit() {
    let mut fixture = Fixture::mounted("names");
    fixture.script("mkdir -p d").expect_code(0);
    let (one, two) = side_by_side(&fixture, "echo 1 >d/a; mkdir d/c", "echo 2 >d/b; ln d/b d/e");
    one.expect_code(0);
    two.expect_code(0);
    fixture.remount();
    assert_eq!(fixture.script("ls d; cat d/a d/b d/e").expect_code(0).out, "a\nb\nc\ne\n1\n2\n2\n");
}

#[test]
fn same_name_second_conflicts() {
    let mut fixture = Fixture::mounted("name");
    fixture.script("mkdir d").expect_code(0);
    let (one, two) = side_by_side(&fixture, "echo 1 >d/a", "echo 2 >d/a");
    one.expect_code(0);
    two.expect_code(75).expect_message("d/a");
    fixture.remount();
    assert_eq!(fixture.text("d/a"), "1\n");
}

#[test]
fn what_was_read_must_not_have_changed() {
    let fixture = Fixture::mounted("read");
    fixture.script("echo 1 >x; echo 1 >y").expect_code(0);
    // write skew: each reads what the other one writes
    let (one, two) = side_by_side(&fixture, "cat x >/dev/null; echo 2 >>y", "cat y >/dev/null; echo 2 >>x");
    one.expect_code(0);
    two.expect_code(75);
    assert_eq!(fixture.text("x"), "1\n");
}

#[test]
fn snapshot_isolation_compares_writes_only() {
    let fixture = Fixture::mounted("skew");
    fixture.script("echo 1 >x; echo 1 >y").expect_code(0);
    let script = "cat x >/dev/null; echo 2 >>y; : >\"$OUTSIDE/s.waiting\"; while [ ! -e \"$OUTSIDE/s.go\" ]; do sleep 0.01; done";
    let mut command = fixture.run();
    command.args(["--isolation", "snapshot", "--", "sh", "-euc", script]).current_dir(fixture.point());
    let one = txfs_e2e::Background::start(command.env("OUTSIDE", fixture.outside("")));
    fixture.wait_paused("s");
    answer_of(&mut fixture.run_script("cat y >/dev/null; echo 2 >>x")).expect_code(0);
    fixture.let_go("s");
    one.finish_soon().expect_code(0);
    assert_eq!(fixture.script("cat x y").out, "1\n2\n1\n2\n");
}

#[test]
fn a_write_outside_counts_as_a_commit() {
    let fixture = Fixture::mounted("outside");
    fixture.script("head -c 65536 /dev/zero >file").expect_code(0);
    let one = fixture.start_script("one", &format!("{PAGE_OF} page file a 3; pause"));
    fixture.wait_paused("one");
    fixture.script(&format!("{PAGE_OF} page file c 3")).expect_code(0);
    fixture.let_go("one");
    one.finish_soon().expect_code(75);
    assert_eq!(&fixture.text("file")[3 * 4096..4 * 4096], "c".repeat(4096));
}

#[test]
fn nobody_sees_anything_before_the_commit() {
    let fixture = Fixture::mounted("unseen");
    fixture
        .script("mkdir d; echo old >d/changed; echo gone >d/removed; ln -s a d/link; chmod 644 d/changed")
        .expect_code(0);
    let before = fixture
        .script("find . -printf '%p %y %m %n %s %T@ %l\\n' | sort; cat d/changed d/removed")
        .expect_code(0)
        .out;
    let script = "echo new >d/changed; chmod 600 d/changed; rm d/removed; mkdir -p e/f; echo 1 >e/f/g; mv d/link e/; pause";
    let one = fixture.start_script("one", script);
    fixture.wait_paused("one");
    // in the mount itself, and in another transaction
    let look = "find . -printf '%p %y %m %n %s %T@ %l\\n' | sort; cat d/changed d/removed";
    assert_eq!(fixture.script(look).expect_code(0).out, before);
    assert_eq!(answer_of(&mut fixture.run_script(look)).expect_code(0).out, before);
    fixture.let_go("one");
    one.finish_soon().expect_code(0);
    let after = fixture
        .script("find . | sort; cat d/changed e/f/g; readlink e/link; stat -c %a d/changed")
        .expect_code(0)
        .out;
    assert_eq!(after, ".\n./d\n./d/changed\n./e\n./e/f\n./e/f/g\n./e/link\nnew\n1\na\n600\n");
}

#[test]
fn a_reader_sees_one_snapshot_while_others_commit() {
    let fixture = Fixture::mounted("snapshot");
    fixture.script("mkdir d; for i in 1 2 3; do echo 0 >d/$i; done; echo deleted >d/old").expect_code(0);
    let look = "ls d; cat d/*; stat -c '%n %s %Y' d/*";
    let script = format!(
        "{{ {look}; }} >\"$OUTSIDE/first\"; pause; {{ {look}; }} >\"$OUTSIDE/second\"; cmp \"$OUTSIDE/first\" \"$OUTSIDE/second\""
    );
    let reader = fixture.start_script("reader", &script);
    fixture.wait_paused("reader");
    answer_of(&mut fixture.run_script("for i in 1 2 3; do echo changed >d/$i; done; rm d/old; echo 4 >d/4"))
        .expect_code(0);
    fixture.script("echo outside >>d/1; mv d/2 d/5").expect_code(0);
    assert_eq!(fixture.script("ls d").out, "1\n3\n4\n5\n");
    fixture.let_go("reader");
    // it only read, so it has nothing to conflict about
    reader.finish_soon().expect_code(0);
    assert!(txfs_e2e::contents(fixture.outside("second")).contains("deleted"));
}

#[test]
fn mapped_memory_is_part_of_the_transaction() {
    let mut fixture = Fixture::mounted("mmap");
    fixture.script("head -c 8192 /dev/zero >file").expect_code(0);
    let script = "import mmap,os,sys\nf=os.open('file',os.O_RDWR)\nm=mmap.mmap(f,8192)\nm[5000:5003]=b'new'\nprint(open('file','rb').read()[5000:5003])\n";
    let mut command = fixture.run();
    command.args(["--", "python3", "-c", script]).current_dir(fixture.point());
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        println!("no python3 here: skipped");
        return;
    }
    // neither msync nor munmap: the commit has to fetch the page
    answer_of(&mut command).expect_code(0);
    assert_eq!(&fixture.text("file")[5000..5003], "new");
    fixture.remount();
    assert_eq!(&fixture.text("file")[5000..5003], "new");
}

#[test]
fn readers_outside_see_a_commit_at_once() {
    let fixture = Fixture::mounted("caches");
    // everything is in the kernel's caches: data, attributes, names, and names that do not exist
    fixture
        .script("mkdir d; echo old >d/file; cat d/file; ls d; ! stat d/new 2>/dev/null; stat d/file")
        .expect_code(0);
    for round in 0..20 {
        let script = format!(
            "echo {round} >d/file; echo {round} >d/new; echo {round} >top; mkdir d/dir{round}; rm -rf d/dir{}",
            round - 1
        );
        answer_of(&mut fixture.run_script(&script)).expect_code(0);
        let seen = fixture.script(
            "cat d/file d/new top; ls d; stat -c %s d/new; rm d/new top; ! stat d/new top 2>/dev/null",
        );
        assert_eq!(
            seen.expect_code(0).out,
            format!("{round}\n{round}\n{round}\ndir{round}\nfile\nnew\n{}\n", round.to_string().len() + 1)
        );
    }
}

#[test]
fn the_report_names_who_it_was() {
    let fixture = Fixture::mounted("report");
    fixture.script("echo 0 >x; echo 0 >y").expect_code(0);
    let json = fixture.outside("report.json");
    let script = "cat x y; : >\"$OUTSIDE/r.waiting\"; while [ ! -e \"$OUTSIDE/r.go\" ]; do sleep 0.01; done; echo 1 >z";
    let mut command = fixture.run();
    command.arg(format!("--json={}", json.display())).args(["--", "sh", "-euc", script]);
    command.current_dir(fixture.point()).env("OUTSIDE", fixture.outside(""));
    let one = txfs_e2e::Background::start(&mut command);
    fixture.wait_paused("r");
    // A transaction, and a call outside of transactions by a process that goes on running.
    let mut other = fixture.run();
    other.args(["-m", "nightly", "--", "sh", "-c", "echo 2 >x"]).current_dir(fixture.point());
    answer_of(&mut other).expect_code(0);
    let outside = "echo 3 >y; : >\"$OUTSIDE/o.waiting\"; while :; do sleep 0.01; done";
    let mut outside_command = std::process::Command::new("sh");
    outside_command.args(["-euc", outside]).current_dir(fixture.point()).env("OUTSIDE", fixture.outside(""));
    let outside = txfs_e2e::Background::start(&mut outside_command);
    fixture.wait_paused("o");
    fixture.let_go("r");
    one.finish_soon().expect_code(75).expect_message("changed by commit").expect_message("and ");
    let report: serde_json::Value =
        serde_json::from_str(&txfs_e2e::contents(&json)).expect("the report is JSON");
    let conflicts = report["conflicts"].as_array().expect("conflicts");
    let of = |path: &str| {
        let found = conflicts.iter().find(|conflict| conflict["path"] == path && conflict["kind"] == "pages");
        found.unwrap_or_else(|| panic!("nothing about {path}: {report:#}"))["other"].clone()
    };
    let (transaction, call) = (of("x"), of("y"));
    assert_eq!(transaction["message"], "nightly");
    assert_eq!(transaction["command"], "sh -c echo 2 >x");
    assert!(transaction["process"].is_u64() && transaction["transaction"].is_u64(), "{report:#}");
    assert_eq!(call["process"], outside.pid());
    assert!(
        call["command"].as_str().is_some_and(|command| command.starts_with("sh -euc echo 3 >y")),
        "{call}"
    );
    assert!(call.get("transaction").is_none() && call["sequence"].is_u64(), "{call}");
}
