//! Tests how real versions of Terraform and OpenTofu read their arguments: which of the allowed ones they know, and
//! that two dashes end the flags of every command. This module uses the installed Terraform; `interop` uses others.

use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper::command::{CommandName, ExtraArgs};
use lockkeeper::model::Distribution;
use lockkeeper::render::plan_output::clean;
use tempfile::TempDir;

use crate::support::server::find_terraform;

/// Commands with arguments of a comment, as the tools call them, with operands that do not exist.
const COMMANDS: [(CommandName, &[&str], &[&str]); 4] = [
    (CommandName::Plan, &["plan", "-input=false"], &[]),
    (
        CommandName::Apply,
        &["apply", "-input=false"],
        &["--", "/nowhere/plan"],
    ),
    (
        CommandName::Import,
        &["import", "-input=false"],
        &["--", "terraform_data.a", "id"],
    ),
    (
        CommandName::State,
        &["state", "rm"],
        &["--", "terraform_data.none"],
    ),
];

/// A program and its working directory.
pub struct Tool {
    program: PathBuf,
    pub distribution: Distribution,
    pub dir: TempDir,
}

/// Result of a call, with its output.
pub struct ProgramOutput {
    pub is_success: bool,
    pub text: String,
}

impl Tool {
    pub fn new(program: PathBuf, distribution: Distribution, code: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("main.tf"), code).unwrap();
        Self {
            program,
            distribution,
            dir,
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the tool is run as people run it"
    )]
    pub fn run(&self, args: &[&str]) -> ProgramOutput {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .stdin(std::process::Stdio::null());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let home = self.dir.path().join("home");
        let output = command
            .env("PATH", path)
            .env("HOME", home)
            .env("CHECKPOINT_DISABLE", "1")
            .output()
            .unwrap();
        let text =
            [output.stdout, output.stderr].map(|bytes| clean(&String::from_utf8_lossy(&bytes)));
        ProgramOutput {
            is_success: output.status.success(),
            text: text.concat(),
        }
    }

    /// Runs a command that has to succeed.
    #[track_caller]
    pub fn does(&self, args: &[&str]) -> String {
        let said = self.run(args);
        assert!(
            said.is_success,
            "{} {args:?}: {}",
            self.program.display(),
            said.text
        );
        said.text
    }

    pub fn plan_file(&self) -> String {
        self.dir.path().join("plan.tfplan").display().to_string()
    }

    /// Returns the allowed arguments that the program does not know: `plan -refresh-only`.
    pub fn unknown_flags(&self) -> Vec<String> {
        std::fs::write(self.dir.path().join("some.tfvars"), "x = \"2\"\n").unwrap();
        let mut unknown = Vec::new();
        for (command, words, operands) in COMMANDS {
            assert!(
                !self.knows(words, "-no-such-flag=x", operands),
                "{words:?} takes any flag"
            );
            for flag in ExtraArgs::default().spellings(command, self.distribution) {
                let example = flag.clone() + value(&flag);
                if !self.knows(words, &example, operands) {
                    unknown.push(format!("{} {flag}", words[0]));
                }
                // Every switch accepts a value, except those that the tools compare as a whole.
                if ["-lock", "-destroy", "-refresh", "-refresh-only"].contains(&flag.as_str())
                    && self.knows(words, &flag, operands)
                {
                    assert!(
                        self.knows(words, &format!("{flag}=false"), operands),
                        "{flag}=false"
                    );
                }
            }
        }
        unknown
    }

    /// Returns true if the program complains about something other than the flag, or not at all. Old versions show
    /// their help.
    fn knows(&self, words: &[&str], flag: &str, operands: &[&str]) -> bool {
        let said = self.run(&[words, &[flag], operands].concat()).text;
        let is_of_flag = |text: &&str| said.contains(*text);
        ![
            "provided but not defined",
            "Options:",
            "invalid boolean",
            "invalid value",
        ]
        .iter()
        .any(is_of_flag)
    }

    /// Plans and applies as Lockkeeper does, with two dashes before every operand.
    pub fn takes_two_dashes(&self) {
        let file = self.plan_file();
        self.does(&["init", "-input=false"]);
        self.does(&["plan", "-input=false", &format!("-out={file}")]);
        assert!(
            self.does(&["show", "-json", "--", &file])
                .contains("format_version")
        );
        assert!(
            self.does(&["apply", "-input=false", "-parallelism=3", "--", &file])
                .contains("Apply complete! Resources: ")
        );
        self.does(&["workspace", "new", "--", "other"]);
        self.does(&["workspace", "select", "--", "default"]);
        // After two dashes an operand is not a flag. One exception holds in all versions: `-version`.
        let said = self.run(&["apply", "-input=false", "--", &file, "-help"]);
        assert!(
            !said.is_success && said.text.contains("Too many command line arguments"),
            "{}",
            said.text
        );
        let said = self.run(&["import", "--", "terraform_data.b", "-version"]);
        assert!(
            said.is_success,
            "`-version` counts wherever it stands; {}",
            said.text
        );
    }

    /// Imports and removes resources, with two dashes before the operands.
    pub fn imports_and_removes(&self) {
        let more = "resource \"terraform_data\" \"b\" {\n}\n";
        std::fs::write(self.dir.path().join("b.tf"), more).unwrap();
        assert!(
            self.does(&["import", "-input=false", "--", "terraform_data.b", "id"])
                .contains("Import successful!")
        );
        let said = self.does(&["state", "rm", "-lock=true", "--", "terraform_data.b"]);
        assert!(
            said.contains("Successfully removed 1 resource instance(s)."),
            "{said}"
        );
    }

    pub fn state(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("terraform.tfstate")).unwrap_or_default()
    }
}

fn value(flag: &str) -> &'static str {
    match flag {
        "-lock-timeout=" => "1s",
        "-parallelism=" => "2",
        "-var=" => "x=2",
        "-var-file=" => "some.tfvars",
        "-target=" | "-replace=" | "-exclude=" => "terraform_data.a",
        _ => "",
    }
}

pub const CODE: &str = "variable \"x\" {\n  default = \"1\"\n}\nresource \"terraform_data\" \"a\" {\n  input = var.x\n}\n";

fn at_hand() -> Tool {
    let program = find_terraform();
    let is_tofu = Path::new(&program)
        .file_name()
        .is_some_and(|name| name == "tofu");
    Tool::new(
        program,
        if is_tofu {
            Distribution::OpenTofu
        } else {
            Distribution::Terraform
        },
        CODE,
    )
}

#[test]
fn the_terraform_at_hand_knows_every_allowed_flag() {
    assert_eq!(at_hand().unknown_flags(), Vec::<String>::new());
}

#[test]
fn the_terraform_at_hand_takes_two_dashes_before_every_operand() {
    let tool = at_hand();
    tool.takes_two_dashes();
    tool.imports_and_removes();
}
