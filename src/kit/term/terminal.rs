//! Writes the output of a subcommand. Standard output is for the requested data, standard error for everything else.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

use super::{ExitStatus, Usage};

/// The two output streams.
pub(crate) struct Terminal<'a> {
    out: &'a mut (dyn Write + Send),
    err: &'a mut (dyn Write + Send),
    /// True once nobody reads the output any more, as after `| head`.
    is_closed: bool,
}

impl<'a> Terminal<'a> {
    pub fn new(out: &'a mut (dyn Write + Send), err: &'a mut (dyn Write + Send)) -> Self {
        let is_closed = false;
        Self {
            out,
            err,
            is_closed,
        }
    }

    /// Writes a line of requested output. Fails when nobody reads the output any more.
    pub fn line(&mut self, line: impl Display) -> std::io::Result<()> {
        let written = writeln!(self.out, "{line}");
        if let Err(error) = &written {
            self.is_closed |= error.kind() == ErrorKind::BrokenPipe;
        }
        written
    }

    /// Writes a line about the progress of the work. A closed standard error is no reason to stop.
    pub fn note(&mut self, line: impl Display) {
        drop(writeln!(self.err, "{line}"));
    }

    /// Prints the help text.
    pub fn shown(&mut self, text: &str) -> ExitStatus {
        drop(write!(self.out, "{text}"));
        ExitStatus::Success
    }

    /// Prints the problem with the arguments.
    pub fn usage(&mut self, text: &str) -> ExitStatus {
        drop(write!(self.err, "{text}"));
        ExitStatus::Usage
    }

    /// Prints why the subcommand failed, with the causes. A reader that closed the output early (`| head`) is not a
    /// failure.
    pub fn failed(&mut self, error: &anyhow::Error) -> ExitStatus {
        if self.is_closed {
            return ExitStatus::Success;
        }
        if let Some(usage) = error.downcast_ref::<Usage>() {
            return self.usage(&usage.to_string());
        }
        self.note(format_args!("error: {error:#}"));
        ExitStatus::Failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output whose reader has gone.
    struct ClosedPipe;

    impl Write for ClosedPipe {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_output_that_nobody_reads_any_more_is_no_failure() {
        let (mut out, mut err) = (ClosedPipe, Vec::new());
        let mut terminal = Terminal::new(&mut out, &mut err);
        let error = terminal.line("a line").unwrap_err();
        assert_eq!(terminal.failed(&error.into()), ExitStatus::Success);
        assert!(err.is_empty());
        // Another pipe may be that of a database.
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut terminal = Terminal::new(&mut out, &mut err);
        let error = std::io::Error::from(ErrorKind::BrokenPipe);
        assert_eq!(terminal.failed(&error.into()), ExitStatus::Failure);
        assert_eq!(String::from_utf8(err).unwrap(), "error: broken pipe\n");
    }
}
