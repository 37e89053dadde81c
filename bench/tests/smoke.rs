//! Every workload runs from end to end with few operations, in a directory, without root.

use std::fs;
use std::path::Path;
use std::process::Command;

fn bench(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_txfs-bench")).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "txfs-bench {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn all_workloads_write_a_page_with_their_pictures() {
    let directory = tempfile::tempdir().unwrap();
    let (work, page) = (directory.path().join("work"), directory.path().join("BENCHMARKS.md"));
    fs::create_dir(&work).unwrap();
    let (work, page) = (work.to_str().unwrap(), page.to_str().unwrap());
    bench(&["all", "--quick", "--flush-delay-us", "0", "--no-mount", "--dir", work, "--report", page]);

    let text = fs::read_to_string(page).unwrap();
    let listed = bench(&["list"]);
    assert!(!listed.is_empty());
    for line in listed.lines().filter(|line| !line.ends_with("(huge)")) {
        let name = line.split_whitespace().next().unwrap();
        assert!(text.contains(&format!("`txfs-bench {name}`")), "{name} is not on the page");
    }
    for picture in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        if picture.ends_with(".svg") {
            let drawn = fs::read_to_string(Path::new(page).with_file_name(picture)).unwrap();
            assert!(drawn.starts_with("<svg") && !drawn.contains("NaN"), "{picture}");
        }
    }
    assert_eq!(fs::read_dir(work).unwrap().count(), 0, "something was left behind");

    fs::remove_file(page).unwrap();
    bench(&["page", page]);
    assert_eq!(fs::read_to_string(page).unwrap(), text, "the page made again from its results differs");
}

#[test]
fn what_does_not_exist_is_told() {
    let output = Command::new(env!("CARGO_BIN_EXE_txfs-bench")).arg("nonsense").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("txfs-bench list"));
}
