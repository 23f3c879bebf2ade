//! ```text
//! lockkeeper policy-engine
//! ```
//!
//! The server starts this to evaluate a policy set with `engine: embedded`; people have no use for it.
//! `workflow/policies/engine.rs` is the other side. Standard input is a request on one line ([`EvalRequest`]) and then the
//! JSON of the plan. Standard output is an answer ([`EvalAnswer`]).
//!
//! The process limits itself before it reads the plan, so that no policy and no plan can use up the memory or the
//! processor of the server. When it reaches a limit, it ends without an answer, and the set is not evaluated.
//!
//! ```text
//! lockkeeper policy-limited policy (test | eval) …
//! ```
//!
//! `lockkeeper policy …` starts this for the same reason, with its own arguments, and says in a sentence that it reached a
//! limit.

use std::ffi::OsString;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
use lockkeeper_policy::embedded::{EvalAnswer, EvalLimits, EvalRequest, evaluate};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Maximum size of a request without the plan, in bytes.
const MAX_REQUEST: u64 = 128 * 1024 * 1024;
/// Address space beyond the memory of the evaluation, for the program itself, in bytes.
const PROGRAM: u64 = 1024 * 1024 * 1024;
/// Processor time beyond the time of the evaluation, for reading and writing, in seconds.
const CPU_MARGIN: u64 = 15;

/// Subcommand that people call.
const POLICY: &str = "policy";
const ENGINE: &str = "policy-engine";
const LIMITED: &str = "policy-limited";

/// Runs the subcommand if `args`, without the program's own name, name it.
pub fn main(args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let args: Vec<OsString> = args.collect();
    let (name, rest) = args.split_first()?;
    let ended = match name.to_str()? {
        ENGINE => run().map(|()| ExitCode::SUCCESS),
        POLICY => run_limited(&args),
        LIMITED => limit_memory(&EvalLimits::default())
            .context("cannot limit the memory of this process")
            .map(|()| {
                super::run(
                    [OsString::from("lockkeeper")]
                        .into_iter()
                        .chain(rest.to_vec()),
                )
            }),
        _ => return None,
    };
    Some(ended.unwrap_or_else(|error| {
        writeln!(io::stderr(), "lockkeeper {}: {error:#}", name.display()).ok();
        ExitCode::FAILURE
    }))
}

/// Runs this program with the same arguments and a limit of memory.
#[expect(
    clippy::disallowed_methods,
    reason = "it has the terminal, the environment and the directory of this process, and no runtime"
)]
fn run_limited(args: &[OsString]) -> anyhow::Result<ExitCode> {
    let exe = std::env::current_exe().context("cannot find this program")?;
    let output = Command::new(exe)
        .arg(LIMITED)
        .args(args)
        .stdin(Stdio::inherit())
        .stdout(Stdio::inherit())
        .stderr(Stdio::piped())
        .output()
        .context("cannot start this program again")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    if let Some(why) = EvalLimits::default().explain_end(code, &said) {
        anyhow::bail!("{why}");
    }
    write!(io::stderr(), "{said}").ok();
    let code = code.and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn run() -> anyhow::Result<()> {
    let mut stdin = io::stdin().lock();
    let mut line = Vec::new();
    (&mut stdin)
        .take(MAX_REQUEST)
        .read_until(b'\n', &mut line)
        .context("cannot read the request")?;
    let request: EvalRequest =
        serde_json::from_slice(&line).context("the request is not as expected")?;
    limit(&request.limits).context("cannot limit the resources of this process")?;
    let mut input = Vec::new();
    // A byte more than allowed shows that there is too much.
    let most = request.limits.input_bytes as u64 + 1;
    stdin
        .take(most)
        .read_to_end(&mut input)
        .context("cannot read the plan")?;
    let answer = match String::from_utf8(input) {
        Ok(input) => answer(&request, &input),
        Err(_) => EvalAnswer::NotEvaluated("the plan is not UTF-8".to_owned()),
    };
    let mut stdout = io::stdout().lock();
    serde_json::to_writer(&mut stdout, &answer).context("cannot write the answer")?;
    stdout.flush().context("cannot write the answer")
}

fn answer(request: &EvalRequest, input: &str) -> EvalAnswer {
    let EvalRequest {
        files,
        data,
        namespaces,
        limits,
    } = request;
    match evaluate(files, data, input, namespaces, limits) {
        Ok(findings) => EvalAnswer::Findings(findings),
        Err(error) => EvalAnswer::NotEvaluated(error.to_string()),
    }
}

fn limit(limits: &EvalLimits) -> nix::Result<()> {
    limit_memory(limits)?;
    lower(
        Resource::RLIMIT_CPU,
        limits.time.as_secs().saturating_add(CPU_MARGIN),
    )?;
    lower(Resource::RLIMIT_FSIZE, 0)
}

fn limit_memory(limits: &EvalLimits) -> nix::Result<()> {
    // The kernel ends this process sooner than the server if the machine has no memory left.
    std::fs::write("/proc/self/oom_score_adj", "500").ok();
    lower(Resource::RLIMIT_DATA, limits.memory_bytes)?;
    lower(
        Resource::RLIMIT_AS,
        limits.memory_bytes.saturating_add(PROGRAM),
    )?;
    // A dump would have the values of the plan, which may be secret.
    lower(Resource::RLIMIT_CORE, 0)
}

/// Lowers a limit for good. A limit that is already lower stays.
fn lower(resource: Resource, most: u64) -> nix::Result<()> {
    let (soft, hard) = getrlimit(resource)?;
    setrlimit(resource, most.min(soft), most.min(hard))
}
