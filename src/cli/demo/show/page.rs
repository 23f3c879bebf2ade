//! Prints the transcript in the order of events.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::markdown;
use crate::cli::Terminal;
use crate::cli::demo::modules::{
    DEPRECATED_BECAUSE, MAINTAINER, MODULE, ModuleRelease, NAMESPACE, SHARED, TAKEN_DOWN_BECAUSE,
};
use crate::cli::demo::play::{DemoOutput, DemoVerdict, StepResult};
use crate::cli::demo::sample::MODULE_REPO;
use crate::cli::demo::script::{BOT, DemoAction, INTRO, PROJECT, ScriptStep};
use crate::cli::style::{TerminalStyle, TextRole};
use crate::emulator::{EmulatedDelivery, ShaStatus, StatusState};

/// Margin of all lines except titles.
const MARGIN: &str = "   ";

/// Writer of the transcript.
pub(in crate::cli::demo) struct Transcript<'a, 't> {
    terminal: &'a mut Terminal<'t>,
    look: TerminalStyle,
}

/// URLs of the pages of the demo.
pub(in crate::cli::demo) struct Addresses {
    pub dashboard: String,
    pub sign_in: String,
    /// Modules of both deployments.
    pub modules: [String; 2],
    pub pulls: Vec<String>,
}

impl<'a, 't> Transcript<'a, 't> {
    pub fn new(terminal: &'a mut Terminal<'t>, look: TerminalStyle) -> Self {
        Self { terminal, look }
    }

    /// Prints the introduction and the facts about the environment.
    pub fn begin(&mut self, facts: &[(&str, String)]) -> io::Result<()> {
        self.line(&self.look.paint(TextRole::Strong, "Lockkeeper demo"))?;
        self.line("")?;
        self.prose(INTRO)?;
        self.line("")?;
        for (name, value) in facts {
            self.line(&format!(
                "{MARGIN}{} {value}",
                self.look.paint(TextRole::Faint, &format!("{name:<11}"))
            ))?;
        }
        Ok(())
    }

    /// Prints the title, explanation and action of a step.
    pub fn step(&mut self, number: usize, steps: usize, step: &ScriptStep) -> io::Result<()> {
        let title = format!("{number}/{steps}  {}", step.title);
        let rule = "─".repeat(self.look.width.saturating_sub(title.chars().count() + 1));
        self.line("")?;
        self.line(&format!(
            "{} {}",
            self.look.paint(TextRole::Strong, &title),
            self.look.paint(TextRole::Faint, &rule)
        ))?;
        self.line("")?;
        self.prose(step.why)?;
        self.line("")?;
        self.line(&format!(
            "{MARGIN}{}",
            self.look.paint(TextRole::Code, &describe(step.act))
        ))
    }

    /// Prints that the server accepted the webhook.
    pub fn delivered(&mut self, delivery: &EmulatedDelivery) -> io::Result<()> {
        let action = delivery.action.as_deref().unwrap_or("sent");
        let text = format!(
            "GitHub sends the signed webhook {} ({action}), and the server accepts it.",
            delivery.event
        );
        self.line(&format!(
            "{MARGIN}{}",
            self.look.paint(TextRole::Faint, &text)
        ))?;
        self.line("")
    }

    /// Prints the result of a step.
    pub fn scene(&mut self, scene: &StepResult) -> io::Result<()> {
        match &scene.heard {
            DemoOutput::Comment(comment) => {
                let after = self
                    .look
                    .paint(TextRole::Faint, &format!("after {}", spoken(scene.took)));
                self.line(&format!(
                    "{MARGIN}{} comments {after}",
                    self.look.paint(TextRole::Strong, BOT)
                ))?;
                self.quoted(&comment.body)?;
            }
            DemoOutput::Reply(text) => {
                self.line(&format!(
                    "{MARGIN}{} answers",
                    self.look.paint(TextRole::Strong, "the server")
                ))?;
                self.quoted(text)?;
            }
            DemoOutput::Silence => {
                self.line(&format!(
                    "{MARGIN}{BOT} did not answer within {} seconds.",
                    scene.took.as_secs()
                ))?;
            }
            DemoOutput::Nothing => {}
        }
        self.statuses(&scene.statuses)?;
        self.line("")?;
        scene
            .verdicts
            .iter()
            .try_for_each(|verdict| self.verdict(verdict))
    }

    fn quoted(&mut self, text: &str) -> io::Result<()> {
        let bar = self.look.paint(TextRole::Faint, "│");
        for line in markdown::lines(text, &self.look.narrower(MARGIN.len() + 2)) {
            self.line(format!("{MARGIN}{bar} {line}").trim_end())?;
        }
        Ok(())
    }

    fn statuses(&mut self, statuses: &[ShaStatus]) -> io::Result<()> {
        let Some(first) = statuses.first() else {
            return Ok(());
        };
        self.line("")?;
        self.line(&format!(
            "{MARGIN}Statuses of the commit {}",
            first.sha.short()
        ))?;
        let widest = statuses
            .iter()
            .map(|status| status.context.chars().count())
            .max()
            .unwrap_or_default();
        for status in statuses {
            let (role, sign) = sign(status.state);
            let text = status.description.as_deref().unwrap_or_default();
            self.line(&format!(
                "{MARGIN}{} {:<widest$}  {text}",
                self.look.paint(role, sign),
                status.context
            ))?;
        }
        Ok(())
    }

    fn verdict(&mut self, verdict: &DemoVerdict) -> io::Result<()> {
        let Some(problem) = &verdict.problem else {
            return self.claim((TextRole::Good, "✓"), verdict.claim);
        };
        self.claim((TextRole::Bad, "✗"), verdict.claim)?;
        self.line(&format!("{MARGIN}  expected: {}", problem.expected))?;
        self.line(&format!("{MARGIN}  seen:     {}", problem.seen))
    }

    /// Prints that all steps succeeded.
    pub fn all_held(&mut self, steps: usize, seconds: u64) -> io::Result<()> {
        self.line("")?;
        let line = format!("All {steps} steps succeeded in {seconds} seconds.");
        self.line(&format!(
            "{} {}",
            self.look.paint(TextRole::Good, "✓"),
            self.look.paint(TextRole::Strong, &line)
        ))
    }

    /// Prints the URLs of the running servers.
    pub fn stay(&mut self, at: &Addresses) -> io::Result<()> {
        self.line("")?;
        self.line(&format!("{MARGIN}Dashboard      {}", at.dashboard))?;
        self.line(&format!("{MARGIN}Sign in        {}", at.sign_in))?;
        for modules in &at.modules {
            self.line(&format!("{MARGIN}Modules        {modules}"))?;
        }
        for pull in &at.pulls {
            self.line(&format!("{MARGIN}Pull request   {pull}"))?;
        }
        self.line("")?;
        self.prose("The servers run until you press Ctrl-C.")
    }

    /// Prints the failure with the end of the server's log.
    pub fn failed(&mut self, problem: &str, log: &[String], folder: &Path) -> io::Result<()> {
        self.line("")?;
        let title = format!("The demo ends here: {problem}");
        self.line(&format!(
            "{} {}",
            self.look.paint(TextRole::Bad, "✗"),
            self.look.paint(TextRole::Strong, &title)
        ))?;
        self.line("")?;
        self.line(&format!("{MARGIN}Last lines of the server's log:"))?;
        let bar = self.look.paint(TextRole::Faint, "│");
        for line in log {
            self.line(&format!("{MARGIN}{bar} {line}"))?;
        }
        self.line("")?;
        self.prose(&format!(
            "All servers are stopped. The log, the database and the states are in {}",
            folder.display()
        ))
    }

    /// Prints that the demo stops.
    pub fn stopping(&mut self) -> io::Result<()> {
        self.line("")?;
        self.line("Stopping.")
    }

    fn prose(&mut self, text: &str) -> io::Result<()> {
        let lines = markdown::lines(text, &self.look.narrower(MARGIN.len()));
        lines
            .iter()
            .try_for_each(|line| self.line(&format!("{MARGIN}{line}")))
    }

    /// Prints a sentence with a sign in front of it.
    fn claim(&mut self, (role, sign): (TextRole, &str), claim: &str) -> io::Result<()> {
        let mut sign = self.look.paint(role, sign);
        for line in markdown::lines(claim, &self.look.narrower(MARGIN.len() + 2)) {
            self.line(&format!("{MARGIN}{sign} {line}"))?;
            " ".clone_into(&mut sign);
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.terminal.line(line)
    }
}

fn spoken(took: Duration) -> String {
    if took < Duration::from_secs(1) {
        return format!("{} ms", took.as_millis());
    }
    format!("{:.1} s", took.as_secs_f64())
}

fn describe(act: DemoAction) -> String {
    match act {
        DemoAction::Open(role) => {
            format!(
                "{} opens #{} “{}”: {}",
                role.login(),
                role.number(),
                role.title(),
                role.change().0
            )
        }
        DemoAction::Say(role, words) => {
            format!("{} comments on #{}: {words}", role.login(), role.number())
        }
        DemoAction::Merge(role) => format!("{} merges #{}", role.login(), role.number()),
        DemoAction::Wait(role) => format!("{} does nothing", role.login()),
        DemoAction::Register(team) => format!(
            "{0}: lockkeeper apps add --owner {0} --url {1} --branch main --dir {PROJECT}",
            team.name(),
            team.address()
        ),
        DemoAction::Push => "carol pushes to main".to_owned(),
        DemoAction::EditAccount(push) => push.title(),
        DemoAction::AddNamespace(team) => format!(
            "{0}: lockkeeper apps add --owner {0} --url https://github.com/{MODULE_REPO} --branch main && \
             lockkeeper registry namespaces add {NAMESPACE} --owner {0}",
            team.name()
        ),
        DemoAction::Release(release) => release.title(),
        DemoAction::Deprecate => format!(
            "{MAINTAINER}: lockkeeper registry deprecate {MODULE} {} --reason \"{DEPRECATED_BECAUSE}\" --instead {}",
            ModuleRelease::First.version(),
            ModuleRelease::Fix.version()
        ),
        DemoAction::TakeDown => format!(
            "{MAINTAINER}: lockkeeper registry takedown {MODULE} {0} --kind security --reason \"{TAKEN_DOWN_BECAUSE}\" \
             --instead {1} --confirm {MODULE}@{0}",
            ModuleRelease::First.version(),
            ModuleRelease::Fix.version()
        ),
        DemoAction::Join => format!(
            "lockkeeper registry peers invite --url PARTNER --share '{SHARED}' > word, and at the partner: lockkeeper \
             registry peers join ACME --word-file word --accept '{SHARED}'"
        ),
    }
}

fn sign(state: StatusState) -> (TextRole, &'static str) {
    match state {
        StatusState::Success => (TextRole::Good, "✓"),
        StatusState::Pending => (TextRole::Changed, "…"),
        StatusState::Failure | StatusState::Error => (TextRole::Bad, "✗"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use insta::assert_snapshot;

    use super::*;
    use crate::cli::demo::play::DemoFailure;
    use crate::cli::demo::script::STORY;

    fn printed(print: impl FnOnce(&mut Transcript<'_, '_>) -> io::Result<()>) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut terminal = Terminal::new(&mut out, &mut err);
        print(&mut Transcript::new(
            &mut terminal,
            TerminalStyle {
                colours: false,
                width: 60,
            },
        ))
        .unwrap();
        assert!(err.is_empty());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_step_says_what_happens_and_why() {
        assert_snapshot!(printed(|page| page.step(4, 6, &STORY[3])), @"

        4/6  Alice applies ─────────────────────────────────────────

           Lockkeeper applies exactly the plan that is shown above,
           and makes no new one. It checks that the commit, the plan
           file and the Terraform version are still the same.

           alice comments on #1: lockkeeper apply
        ");
    }

    #[test]
    fn what_does_not_hold_is_shown_with_what_was_seen() {
        let problem = DemoFailure {
            expected: "network planned".to_owned(),
            seen: "network failed".to_owned(),
        };
        let verdicts = vec![
            DemoVerdict {
                claim: "the bot answers",
                problem: None,
            },
            DemoVerdict {
                claim: "it is planned",
                problem: Some(problem),
            },
        ];
        let scene = StepResult {
            heard: DemoOutput::Silence,
            took: Duration::from_secs(90),
            statuses: Vec::new(),
            verdicts,
        };
        let log = ["one line".to_owned()];
        assert_snapshot!(printed(|page| {
            page.scene(&scene)?;
            page.failed("The step “It” failed.", &log, Path::new("/tmp/demo"))
        }), @"
           lockkeeper-bot did not answer within 90 seconds.

           ✓ the bot answers
           ✗ it is planned
             expected: network planned
             seen:     network failed

        ✗ The demo ends here: The step “It” failed.

           Last lines of the server's log:
           │ one line

           All servers are stopped. The log, the database and the
           states are in /tmp/demo
        ");
    }
}
