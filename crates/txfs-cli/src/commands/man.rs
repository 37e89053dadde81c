//! `txfs man`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man as Page;

use super::printed;
use crate::cli::{Cli, Man};
use crate::error::Error;

/// Prints txfs(1), or writes one page for each subcommand.
pub fn run(arguments: Man) -> Result<(), Error> {
    // `txfs help` needs no page.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    match arguments.out {
        None => printed(io::stdout().lock().write_all(&render(&command))),
        Some(directory) => {
            fs::create_dir_all(&directory)
                .map_err(|source| Error::io("make the directory", &directory, source))?;
            write_all(&command, "txfs", &directory)
        }
    }
}

fn write_all(command: &Command, name: &str, directory: &Path) -> Result<(), Error> {
    let path = directory.join(format!("{name}.1"));
    fs::write(&path, render(command)).map_err(|source| Error::io("write", &path, source))?;
    for subcommand in command.get_subcommands() {
        write_all(subcommand, &format!("{name}-{}", subcommand.get_name()), directory)?;
    }
    Ok(())
}

/// Once built, a subcommand knows its full name, `txfs-run`.
fn render(command: &Command) -> Vec<u8> {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = render_to(command, &mut text);
    text
}

fn render_to(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    let page = Page::new(command.clone()).section("1").manual("TxFS");
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)?;
    if command.has_subcommands() {
        page.render_subcommands_section(out)?;
    }
    let help = command.get_after_long_help().or(command.get_after_help());
    if let Some(help) = help {
        out.write_all(sections(&help.to_string()).as_bytes())?;
    }
    Ok(())
}

/// What stands below the options in --help, as sections of the page. Its blocks are told apart by their first lines;
/// those with columns keep their lines, the rest is filled as any text.
fn sections(help: &str) -> String {
    let mut page = String::new();
    for block in help.split("\n\n") {
        let (first, rest) = block.split_once('\n').unwrap_or((block, ""));
        let (title, body) = match first {
            "Examples:" => ("EXAMPLES", rest),
            "Environment:" => ("ENVIRONMENT", rest),
            "Exit codes:" => ("EXIT STATUS", rest),
            _ if first.starts_with("Exit codes:") => ("EXIT STATUS", block),
            _ => ("NOTES", block),
        };
        page.push_str(&format!(".SH {title}\n"));
        let columns = body.lines().any(|line| line.starts_with(' '));
        if columns {
            page.push_str(".nf\n");
        }
        for line in body.lines() {
            page.push_str(&escape(line.strip_prefix("  ").unwrap_or(line)));
            page.push('\n');
        }
        if columns {
            page.push_str(".fi\n");
        }
    }
    page
}

/// Text as roff takes it: no commands at the start of a line, and hyphens that can be copied as such.
fn escape(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_becomes_sections() {
        let page =
            sections("Examples:\n  txfs x -y\n  .profile\n\nExit codes: 0 when\nall is well.\n\nMore.");
        assert_eq!(
            page,
            ".SH EXAMPLES\n.nf\ntxfs x \\-y\n\\&.profile\n.fi\n.SH EXIT STATUS\nExit codes: 0 when\nall is well.\n.SH NOTES\nMore.\n"
        );
    }
}
