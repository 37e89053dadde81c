//! Colours, where a terminal reads them and NO_COLOR does not forbid them.

use std::fmt::Display;
use std::io::IsTerminal;

/// Paints text, or leaves it as it is.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    enabled: bool,
}

/// For standard output.
pub fn stdout() -> Paint {
    Paint::for_stream(&std::io::stdout())
}

/// For standard error.
pub fn stderr() -> Paint {
    Paint::for_stream(&std::io::stderr())
}

impl Paint {
    /// For a stream: colours only on a terminal that understands them (see no-color.org).
    pub fn for_stream(stream: &impl IsTerminal) -> Paint {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Paint { enabled: !forbidden && !dumb && stream.is_terminal() }
    }

    /// Never any colour.
    #[cfg(test)]
    pub const fn plain() -> Paint {
        Paint { enabled: false }
    }

    fn wrap(self, code: &str, text: impl Display) -> String {
        if self.enabled { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    pub fn red(self, text: impl Display) -> String {
        self.wrap("31", text)
    }

    pub fn green(self, text: impl Display) -> String {
        self.wrap("32", text)
    }

    pub fn yellow(self, text: impl Display) -> String {
        self.wrap("33", text)
    }

    pub fn blue(self, text: impl Display) -> String {
        self.wrap("34", text)
    }

    pub fn cyan(self, text: impl Display) -> String {
        self.wrap("36", text)
    }

    pub fn bold(self, text: impl Display) -> String {
        self.wrap("1", text)
    }

    pub fn dim(self, text: impl Display) -> String {
        self.wrap("2", text)
    }
}
