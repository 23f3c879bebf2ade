//! Acts as a `terraform` that finishes at once: this program under another name, which records the time of each call.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use lockkeeper::clock::{Clock as _, SystemClock};

const NAME: &str = "terraform";
const NOTES: &str = "calls";
/// Name of the file that holds plans. While it exists, plans record their start in it and do not end.
const HELD: &str = "held";
/// Name of the file whose existence makes plans large.
const LARGE: &str = "large";
/// Resources of a large plan, and bytes of output for each of them.
const LARGE_RESOURCES: usize = 5_000;
const LARGE_RESOURCE: usize = 10_000;

/// Output of `show -json` for the plan.
const SHOWN: &str = r#"{"format_version":"1.2","resource_changes":[{"address":"terraform_data.subnet","mode":"managed","change":{"actions":["create"]}}]}"#;
const PLAN: &str = "
Terraform will perform the following actions:

  # terraform_data.subnet will be created
  + resource \"terraform_data\" \"subnet\" {
      + id    = (known after apply)
      + input = \"10.0.1.0/24\"
    }

Plan: 1 to add, 0 to change, 0 to destroy.
";

/// A recorded call of the stub.
#[derive(Clone, Debug)]
pub struct Call {
    /// Time when `main` began.
    pub began: DateTime<Utc>,
    /// Time right before the end.
    pub ended: DateTime<Utc>,
}

/// Creates a directory of tools with the stub in it.
pub fn install(tools: &Path) -> anyhow::Result<()> {
    std::fs::create_dir(tools)?;
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    Ok(symlink(own, tools.join(NAME))?)
}

/// Holds plans: they do not end from now on.
pub fn hold(tools: &Path) -> anyhow::Result<()> {
    Ok(std::fs::write(tools.join(HELD), "")?)
}

/// Returns how many plans have started since [`hold`].
pub fn held(tools: &Path) -> usize {
    std::fs::read(tools.join(HELD)).map_or(0, |notes| notes.len())
}

/// Lets plans end again.
pub fn let_go(tools: &Path) -> anyhow::Result<()> {
    Ok(std::fs::remove_file(tools.join(HELD))?)
}

/// Makes plans large from now on: 5,000 resources and 50 MB of output.
pub fn enlarge(tools: &Path) -> anyhow::Result<()> {
    Ok(std::fs::write(tools.join(LARGE), "")?)
}

/// Returns the calls since the last time.
pub fn take_calls(tools: &Path) -> anyhow::Result<Vec<Call>> {
    let path = tools.join(NOTES);
    let text = std::fs::read_to_string(&path).context("the stub was not called")?;
    std::fs::remove_file(path)?;
    text.lines()
        .map(|line| read_call(line).with_context(|| format!("the stub noted `{line}`")))
        .collect()
}

fn read_call(line: &str) -> Option<Call> {
    let words: Vec<&str> = line.split(' ').collect();
    let &[_, began, ended] = words.as_slice() else {
        return None;
    };
    let time = |text: &str| DateTime::from_timestamp_micros(text.parse().ok()?);
    Some(Call {
        began: time(began)?,
        ended: time(ended)?,
    })
}

/// Returns the directory of tools if this program was started as `terraform` from there.
pub fn called_as_terraform() -> Option<PathBuf> {
    let name = PathBuf::from(std::env::args_os().next()?);
    (name.file_name()? == NAME).then(|| name.parent().map(Path::to_owned))?
}

/// Acts on the arguments as Terraform would.
pub fn main(tools: &Path) -> ExitCode {
    let began = SystemClock.now();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let step = args.first().map_or("", String::as_str);
    let done = work(tools, step, &args)
        .and_then(|()| {
            if step == "plan" {
                wait(&tools.join(HELD))
            } else {
                Ok(())
            }
        })
        .and_then(|()| note(tools, step, began));
    if done.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn work(tools: &Path, step: &str, args: &[String]) -> std::io::Result<()> {
    let is_large = tools.join(LARGE).exists();
    match step {
        "version" => println!(r#"{{"terraform_version":"1.15.5"}}"#),
        "init" => std::fs::create_dir_all(".terraform")?,
        "plan" => {
            let file = args.iter().find_map(|arg| arg.strip_prefix("-out="));
            std::fs::write(file.ok_or(std::io::ErrorKind::InvalidInput)?, "a plan")?;
            if is_large {
                print_large_plan()?;
            } else {
                println!("{PLAN}");
            }
        }
        "show" if is_large => print_large_plan_json()?,
        "apply" => println!("Apply complete! Resources: 1 added, 0 changed, 0 destroyed."),
        "show" => println!("{SHOWN}"),
        _ => {}
    }
    Ok(())
}

fn print_large_plan() -> std::io::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    writeln!(out, "\nTerraform will perform the following actions:\n")?;
    for n in 0..LARGE_RESOURCES {
        let head = format!(
            "  # terraform_data.x[{n}] will be created\n  + resource \"terraform_data\" \"x\" {{\n"
        );
        out.write_all(head.as_bytes())?;
        let mut written = head.len();
        while written < LARGE_RESOURCE {
            let line = format!(
                "      + attribute_{written:05} = \"{:064x}\"\n",
                n * 31 + written
            );
            out.write_all(line.as_bytes())?;
            written += line.len();
        }
        writeln!(out, "    }}\n")?;
    }
    writeln!(
        out,
        "Plan: {LARGE_RESOURCES} to add, 0 to change, 0 to destroy."
    )?;
    out.flush()
}

fn print_large_plan_json() -> std::io::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    write!(out, r#"{{"format_version":"1.2","resource_changes":["#)?;
    for n in 0..LARGE_RESOURCES {
        let comma = if n == 0 { "" } else { "," };
        write!(
            out,
            r#"{comma}{{"address":"terraform_data.x[{n}]","mode":"managed","type":"terraform_data","name":"x","change":{{"actions":["create"],"before":null,"after":{{"input":"{n:01000x}"}}}}}}"#
        )?;
    }
    writeln!(out, "]}}")?;
    out.flush()
}

fn wait(held: &Path) -> std::io::Result<()> {
    if held.exists() {
        File::options().append(true).open(held)?.write_all(b".")?;
    }
    while held.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn note(tools: &Path, step: &str, began: DateTime<Utc>) -> std::io::Result<()> {
    let mut notes = File::options()
        .create(true)
        .append(true)
        .open(tools.join(NOTES))?;
    let ended = SystemClock.now();
    notes.write_all(
        format!(
            "{step} {} {}\n",
            began.timestamp_micros(),
            ended.timestamp_micros()
        )
        .as_bytes(),
    )
}
