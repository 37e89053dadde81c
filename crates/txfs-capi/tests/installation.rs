//! What `make install` leaves of libtxfs: names, links, symbols, pkg-config, man pages.

mod installed;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use installed::{Installed, Linked, built, command, done, repository};

fn declared(header: &Path) -> BTreeSet<String> {
    let script = repository().join("scripts/functions-of-header.sh");
    done(Command::new(script).arg(header)).lines().map(str::to_owned).collect()
}

fn headers() -> Vec<std::path::PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn the_library_exports_what_the_headers_declare_and_nothing_else() {
    let symbols = done(Command::new("nm").args(["-D", "--defined-only"]).arg(built().join("libtxfs.so")));
    let exported: BTreeSet<String> =
        symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect();
    let declared: BTreeSet<String> = headers().iter().flat_map(|header| declared(header)).collect();
    assert_eq!(exported, declared);
}

#[test]
fn programs_ask_for_the_soname() {
    let installed = Installed::new();
    let library = installed.path("usr/lib/libtxfs.so");
    let dynamic = done(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("[libtxfs.so.0]"), "{dynamic}");
    let version = env!("CARGO_PKG_VERSION");
    let file = fs::canonicalize(&library).unwrap();
    assert_eq!(
        file,
        fs::canonicalize(installed.path("usr/lib")).unwrap().join(format!("libtxfs.so.{version}"))
    );
    assert_eq!(fs::canonicalize(installed.path("usr/lib/libtxfs.so.0")).unwrap(), file);
    assert_eq!(installed.pkg_config(&["--modversion"]).trim(), version);
}

/// Compiles an example; one without `main` gets an empty one.
fn compile_example(installed: &Installed, name: &str, code: &str) -> PathBuf {
    let source = installed.path(format!("{name}.c"));
    let main = if code.contains("int main(") { "" } else { "int main(void) { return 0; }\n" };
    fs::write(&source, format!("{code}\n{main}")).unwrap();
    installed.compile(&source, Linked::Shared)
}

#[test]
fn examples_of_the_readme_compile_and_work() {
    let installed = Installed::new();
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let blocks: Vec<&str> =
        readme.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 2);
    for (number, code) in blocks.iter().enumerate() {
        let program = compile_example(&installed, &format!("readme{number}"), code);
        done(command(&program).current_dir(installed.path("")));
    }
    assert!(installed.path("mail.txfs/MANIFEST").exists());
}

#[test]
fn examples_of_the_man_pages_compile_and_work() {
    let installed = Installed::new();
    for page in ["txfs", "txfs_volume"] {
        let text = fs::read_to_string(installed.path(format!("usr/share/man/man3/{page}.3"))).unwrap();
        let example = text.split(".SH EXAMPLES\n.nf\n").nth(1).and_then(|rest| rest.split("\n.fi\n").next());
        let code = example.unwrap().replace("\\-", "-").replace("\\e", "\\");
        let program = compile_example(&installed, page, &code);
        done(command(&program).current_dir(installed.path("")));
    }
    assert!(installed.path("mail.txfs/MANIFEST").exists());
}

#[test]
fn every_function_has_a_man_page() {
    let installed = Installed::new();
    let pages = installed.path("usr/share/man/man3");
    for header in headers() {
        let stem = header.file_stem().unwrap().to_str().unwrap().to_owned();
        let page = fs::read_to_string(pages.join(format!("{stem}.3"))).unwrap();
        for function in declared(&header) {
            assert!(page.contains(&function), "{stem}(3) does not mention {function}");
            assert!(pages.join(format!("{function}.3")).exists(), "{function}(3)");
        }
        let mut check = Command::new("man");
        check.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]);
        check.arg(pages.join(format!("{stem}.3"))).env("MANROFFSEQ", "");
        if let Ok(output) = check.output() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && said.is_empty(), "{stem}(3): {said}");
        }
    }
}
