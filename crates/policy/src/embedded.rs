//! Evaluates Rego inside the program.
//!
//! The same Rego has the same verdicts under `conftest test`, with these differences. Each refuses more:
//! - Only Rego v1, the default of conftest since 0.60. Policies in the older syntax are an error; so is everything
//!   that needs the network, the clock or the environment (`http.send`, `time.now_ns`, `opa.runtime`), even where it
//!   would not be reached.
//! - A rule whose result is no set or list of texts and objects is an error. conftest ignores such results, rules with empty
//!   messages, and rules or packages whose names differ from others only in case.
//! - No rule at all in the packages is an error, and so is a plan that is not an object.
//! - Expressions that are nested too deeply for the parser are an error. The tests of `nesting.rs` have them.
//! - Rules `require_approval` exist: violations that pass with a number of approvals. Under conftest, a `violation` whose object
//!   has the key `require_approval` is the same, in both engines.
//!
//! Two differences refuse less, on policies that never worked with conftest: it checks types and annotations, and finds
//! recursion that is not reached. The corpus in `tests/fixtures/policies` has all other differences; `make interop` compares.
//!
//! Nothing here opens a file. Time is limited by the evaluator itself, which looks at the clock between two
//! steps; a single function can still take long, and nothing limits memory. So a server evaluates in a child process
//! ([`EvalRequest`], [`EvalAnswer`]).

mod builtins;
mod calls;
mod nesting;
mod outputs;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::num::{NonZeroU32, NonZeroUsize};
use std::thread;
use std::time::{Duration, Instant};

use regorus::unstable::{Rule, RuleHead};
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, PolicyLengthConfig};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::findings::{FindingLevel, PolicyFinding, ReadError, RegoKeys, one_line};

/// Maximum number of files of a set.
pub const MAX_FILES: usize = 2000;
/// Maximum size of all files of a set together, in bytes.
pub const MAX_POLICY_BYTES: usize = 16 * 1024 * 1024;
/// Package that is evaluated unless the set names others, as with conftest.
const MAIN: &str = "main";
/// Stack of the evaluation, in bytes. Expressions and rules call each other deeply.
const STACK: usize = 64 * 1024 * 1024;
/// Steps of the evaluator between two looks at the clock.
const CHECK_EVERY: NonZeroU32 = NonZeroU32::new(1000).expect("it is not zero");
/// Largest policy that the parser accepts. The defaults refuse long lines of test data.
const LENGTHS: PolicyLengthConfig = PolicyLengthConfig {
    max_col: NonZeroU32::new(100_000).expect("it is not zero"),
    max_file_bytes: NonZeroUsize::new(4 * 1024 * 1024).expect("it is not zero"),
    max_lines: NonZeroUsize::new(100_000).expect("it is not zero"),
};

/// File with policies or their tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegoFile {
    /// Path for messages, such as `policies/deny.rego`.
    pub path: String,
    pub text: String,
}

/// Limits of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvalLimits {
    /// Time for the evaluation of all rules together.
    pub time: Duration,
    /// Maximum size of a plan, in bytes of JSON.
    pub input_bytes: usize,
    /// Memory of the child process that evaluates, in bytes. The evaluation itself does not enforce it.
    pub memory_bytes: u64,
}

impl Default for EvalLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_mins(1),
            input_bytes: 64 * 1024 * 1024,
            memory_bytes: 2 * 1024 * 1024 * 1024,
        }
    }
}

impl EvalLimits {
    /// Explains for people why a child process that evaluates gave no answer. `code` is `None` if a signal ended it. `None`: it
    /// ended with an exit code of its own.
    pub fn explain_end(&self, code: Option<i32>, stderr: &str) -> Option<String> {
        // An error that a policy caused can quote such a text.
        if code.is_some() {
            return None;
        }
        Some(if stderr.contains("memory allocation of") {
            format!(
                "the policies need more than {} MiB of memory on this plan. Make them simpler, or use `engine: conftest`",
                self.memory_bytes >> 20
            )
        } else {
            "the embedded engine was ended by a signal: the policies need too much time or memory on this plan, or \
             call each other too deeply. Make them simpler, or use `engine: conftest`"
                .to_owned()
        })
    }
}

/// Everything that an evaluation in a child process needs, except the plan, whose text follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalRequest {
    pub files: Vec<RegoFile>,
    /// Documents below `data`, merged.
    pub data: Vec<Value>,
    /// Packages to evaluate; `*` for all. `main` if there are none.
    pub namespaces: Vec<String>,
    pub limits: EvalLimits,
}

/// Answer of a child process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvalAnswer {
    Findings(Vec<PolicyFinding>),
    /// The set could not be evaluated; holds the reason, for people.
    NotEvaluated(String),
}

/// Reason that policies could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("there is no policy: no file ends in `.rego`")]
    NoPolicies,
    #[error(
        "the policies are too large: at most {MAX_FILES} files with {} MiB together are evaluated",
        MAX_POLICY_BYTES / 1024 / 1024
    )]
    PoliciesTooLarge,
    /// Holds the place and the message of the parser.
    #[error("{0}. Policies are read as Rego v1, as conftest does since 0.60")]
    Policy(String),
    /// An expression that the parser could not read without using up its stack or its time.
    #[error("{place}: {problem}. Give inner parts names of their own: `name := …`")]
    TooDeep {
        /// File and line of the expression.
        place: String,
        /// Kind of expressions that are nested too deeply, and the limit.
        problem: String,
    },
    /// Holds the place, and what to write instead.
    #[error(
        "{0}. The embedded engine does not support this, and conftest may; docs/policies.md lists the differences"
    )]
    Unsupported(String),
    #[error(
        "{place}: there is no function `{name}` with {arguments} arguments. The embedded engine has no functions that \
         use the network, the clock or the environment"
    )]
    UnknownFunction {
        name: String,
        arguments: usize,
        /// File and line of the call.
        place: String,
    },
    /// Holds the names of the packages.
    #[error(
        "no rule was evaluated: there is no rule `deny`, `violation`, `warn` or `require_approval` in {0}. Check the \
         package of the policies and the `namespaces` of the policy set"
    )]
    NoRules(String),
    #[error("the plan has {bytes} bytes of JSON; at most {limit} are evaluated")]
    PlanTooLarge { bytes: usize, limit: usize },
    #[error("the plan is not a JSON object: {0}")]
    Plan(String),
    #[error("the data of the policies cannot be used: {0}")]
    Data(String),
    #[error("the policies took longer than {} seconds", .0.as_secs_f64())]
    TooLong(Duration),
    /// Holds the function with its problem.
    #[error(
        "a function failed on a value that conftest could have handled, so there is no verdict. {0}"
    )]
    Function(String),
    #[error("the result of the rule `{rule}` is not usable: {problem}")]
    Result { rule: String, problem: String },
    /// Holds the message of the evaluator.
    #[error("the policies cannot be evaluated: {0}")]
    Failed(String),
}

/// Result of one test of policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestResult {
    /// Rule, such as `main.test_public_buckets_are_denied`.
    pub rule: String,
    /// File and line of the rule.
    pub place: String,
    pub outcome: TestOutcome,
    /// Lines of `print` in the test and the rules that it used.
    pub prints: Vec<String>,
}

/// Outcome of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestOutcome {
    Passed,
    /// The rule is false or undefined.
    Failed,
    /// The rule cannot be evaluated; holds the reason.
    Broken(String),
}

/// Evaluates the rules of policies on a plan. Returns the findings, worst first.
pub fn evaluate(
    files: &[RegoFile],
    data: &[Value],
    input: &str,
    namespaces: &[String],
    limits: &EvalLimits,
) -> Result<Vec<PolicyFinding>, EvalError> {
    if input.len() > limits.input_bytes {
        return Err(EvalError::PlanTooLarge {
            bytes: input.len(),
            limit: limits.input_bytes,
        });
    }
    on_large_stack(|| {
        let mut evaluation = Evaluation::prepare(files, data, limits)?;
        let plan =
            regorus::Value::from_json_str(input).map_err(|error| EvalError::Plan(plain(&error)))?;
        if plan.as_object().is_err() {
            return Err(EvalError::Plan("write `terraform show -json`".to_owned()));
        }
        evaluation.engine.set_input(plan);
        evaluation.findings(namespaces)
    })
}

/// Runs the tests of policies: the rules whose names begin with `test_`, in all packages.
pub fn test(
    files: &[RegoFile],
    data: &[Value],
    limits: &EvalLimits,
) -> Result<Vec<TestResult>, EvalError> {
    on_large_stack(|| {
        let mut evaluation = Evaluation::prepare(files, data, limits)?;
        let rules = evaluation.rules()?;
        let tests = rules
            .into_iter()
            .filter(|((_, name), _)| name.starts_with("test_"));
        tests
            .map(|((package, name), place)| {
                let rule = format!("{package}.{name}");
                let outcome = match evaluation.value(&rule) {
                    Ok(Some(Value::Bool(true))) => TestOutcome::Passed,
                    Ok(_) => TestOutcome::Failed,
                    Err(error @ EvalError::TooLong(_)) => return Err(error),
                    Err(error) => TestOutcome::Broken(error.to_string()),
                };
                let prints = evaluation.engine.take_prints().unwrap_or_default();
                Ok(TestResult {
                    rule,
                    place,
                    outcome,
                    prints,
                })
            })
            .collect()
    })
}

/// Runs an evaluation on a thread with a large stack. A panic of the evaluator is an error.
fn on_large_stack<T: Send>(
    work: impl FnOnce() -> Result<T, EvalError> + Send,
) -> Result<T, EvalError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("policies".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, work)
            .map_err(|error| EvalError::Failed(format!("cannot start a thread: {error}")))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(EvalError::Failed("the evaluator crashed".to_owned())))
    })
}

/// Policies that are ready to be evaluated.
struct Evaluation {
    engine: Engine,
    failure: builtins::Failure,
    start: Instant,
    time: Duration,
}

/// Rules by package and name, with the place of their first definition.
type RuleNames = BTreeMap<(String, String), String>;

impl Evaluation {
    fn prepare(files: &[RegoFile], data: &[Value], limits: &EvalLimits) -> Result<Self, EvalError> {
        if files.is_empty() {
            return Err(EvalError::NoPolicies);
        }
        let bytes: usize = files.iter().map(|file| file.text.len()).sum();
        if files.len() > MAX_FILES || bytes > MAX_POLICY_BYTES {
            return Err(EvalError::PoliciesTooLarge);
        }
        let start = Instant::now();
        let mut files = files.to_vec();
        for file in &mut files {
            // Editors on Windows write it, and OPA skips it.
            if let Some(text) = file.text.strip_prefix('\u{feff}') {
                file.text = text.to_owned();
            }
        }
        files.iter().try_for_each(nesting::check)?;
        let mut engine = parsed(&files)?;
        for rewrite in [calls::resolve, outputs::guard_loops, outputs::move_values] {
            let changed = rewrite(engine.get_modules())?;
            if changed.iter().all(Option::is_none) {
                continue;
            }
            for (file, changed) in files.iter_mut().zip(changed) {
                file.text = changed.unwrap_or_else(|| std::mem::take(&mut file.text));
            }
            engine = parsed(&files)?;
        }
        for document in data {
            engine
                .add_data(regorus::Value::from(document.clone()))
                .map_err(|error| EvalError::Data(plain(&error)))?;
        }
        // As conftest: a function that fails has no value. `builtins` says where that would be a hole.
        engine.set_strict_builtin_errors(false);
        engine.set_gather_prints(true);
        let failure = builtins::Failure::default();
        builtins::register(&mut engine, &failure)?;
        Ok(Self {
            engine,
            failure,
            start,
            time: limits.time,
        })
    }

    /// Returns all rules except functions.
    fn rules(&mut self) -> Result<RuleNames, EvalError> {
        let mut rules = RuleNames::new();
        for module in self.engine.get_modules() {
            let package = calls::path(&module.package.refr, None)?;
            for rule in &module.policy {
                let head = match &**rule {
                    Rule::Spec {
                        head: RuleHead::Compr { refr, .. } | RuleHead::Set { refr, .. },
                        ..
                    } => refr,
                    Rule::Default { refr, args, .. } if args.is_empty() => refr,
                    Rule::Spec {
                        head: RuleHead::Func { .. },
                        ..
                    }
                    | Rule::Default { .. } => continue,
                };
                let name = calls::path(head, None)?;
                let name = name.split('.').next().unwrap_or_default().to_owned();
                rules
                    .entry((package.clone(), name))
                    .or_insert_with(|| calls::place(rule.span()));
            }
        }
        Ok(rules)
    }

    /// Evaluates a rule, such as `main.deny`. Returns `None` if it has no value.
    fn value(&mut self, rule: &str) -> Result<Option<Value>, EvalError> {
        let too_long = EvalError::TooLong(self.time);
        let Some(left) = self.time.checked_sub(self.start.elapsed()) else {
            return Err(too_long);
        };
        self.engine
            .set_execution_timer_config(ExecutionTimerConfig {
                limit: left,
                check_interval: CHECK_EVERY,
            });
        let result = self.engine.eval_rule(format!("data.{rule}"));
        // First: the evaluator loses errors inside of functions that have another definition.
        if self.start.elapsed() > self.time {
            return Err(too_long);
        }
        if let Some(failure) = self.failure.take() {
            return Err(EvalError::Function(failure));
        }
        let unusable = |problem: String| EvalError::Result {
            rule: rule.to_owned(),
            problem,
        };
        match result {
            Ok(regorus::Value::Undefined) => Ok(None),
            Ok(value) => {
                let json = value
                    .to_json_str()
                    .map_err(|error| unusable(plain(&error)))?;
                serde_json::from_str(&json)
                    .map(Some)
                    .map_err(|error| unusable(error.to_string()))
            }
            Err(error) => Err(EvalError::Failed(format!("{}, in `{rule}`", plain(&error)))),
        }
    }

    fn findings(&mut self, namespaces: &[String]) -> Result<Vec<PolicyFinding>, EvalError> {
        let is_all = namespaces.iter().any(|name| name == "*");
        let is_wanted = |package: &str| {
            is_all
                || namespaces.iter().any(|name| name == package)
                || (namespaces.is_empty() && package == MAIN)
        };
        let mut rules = self.rules()?;
        rules.retain(|(package, _), _| is_wanted(package));
        let mut findings = Vec::new();
        let mut is_any = false;
        for (package, name) in rules.keys() {
            let Some((kind, suffix)) = rule_kind(name) else {
                continue;
            };
            is_any = true;
            let is_excepted = rules.contains_key(&(package.clone(), "exception".to_owned()))
                && self.is_excepted(package, suffix)?;
            let rule = format!("{package}.{name}");
            // An excepted rule is evaluated as well: its errors are errors.
            let found = match self.value(&rule)? {
                Some(value) => findings_of(kind, &rule, value)?,
                None => Vec::new(),
            };
            if !is_excepted {
                findings.extend(found);
            }
        }
        if !is_any {
            let packages: Vec<String> = match namespaces {
                [] => vec![format!("the package `{MAIN}`")],
                _ if is_all => vec!["any package".to_owned()],
                names => names
                    .iter()
                    .map(|name| format!("the package `{name}`"))
                    .collect(),
            };
            return Err(EvalError::NoRules(packages.join(", ")));
        }
        crate::findings::sort(&mut findings);
        Ok(findings)
    }

    /// Returns true if `data.PACKAGE.exception[_][_]` has this end of a rule's name.
    fn is_excepted(&mut self, package: &str, suffix: &str) -> Result<bool, EvalError> {
        let Some(Value::Array(lists)) = self.value(&format!("{package}.exception"))? else {
            return Ok(false);
        };
        Ok(lists.iter().any(|list| match list {
            Value::Array(names) => names.iter().any(|name| name == suffix),
            Value::Object(names) => names.values().any(|name| name == suffix),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }))
    }
}

fn parsed(files: &[RegoFile]) -> Result<Engine, EvalError> {
    let mut engine = Engine::new();
    engine.set_policy_length_config(LENGTHS);
    for RegoFile { path, text } in files {
        // The evaluator would take it as the end of the file.
        if let Some((before, _)) = text.split_once('\0') {
            return Err(EvalError::Policy(format!(
                "{path}:{}: a NUL character is not allowed",
                before.matches('\n').count() + 1
            )));
        }
        engine
            .add_policy(path.clone(), text.clone())
            .map_err(|error| EvalError::Policy(plain(&error)))?;
    }
    Ok(engine)
}

/// Kind of a rule whose results are findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuleKind {
    Deny,
    RequireApproval,
    Warn,
}

/// Returns the kind of a rule and the rest of its name, by which exceptions name it: `deny_public` is `public`.
fn rule_kind(name: &str) -> Option<(RuleKind, &str)> {
    let kinds = [
        ("deny", RuleKind::Deny),
        ("violation", RuleKind::Deny),
        ("require_approval", RuleKind::RequireApproval),
        ("warn", RuleKind::Warn),
    ];
    kinds.into_iter().find_map(|(word, kind)| {
        let rest = name.strip_prefix(word)?;
        let is_word =
            |word: &str| !word.is_empty() && word.bytes().all(|c| c.is_ascii_alphanumeric());
        match rest.strip_prefix('_') {
            Some(rest) => rest.split('_').all(is_word).then_some((kind, rest)),
            None => rest.is_empty().then_some((kind, "")),
        }
    })
}

/// Returns the findings in the result of a rule: a set or list of texts and objects.
fn findings_of(kind: RuleKind, rule: &str, value: Value) -> Result<Vec<PolicyFinding>, EvalError> {
    let unusable = |problem: &str| EvalError::Result {
        rule: rule.to_owned(),
        problem: problem.to_owned(),
    };
    let results = match value {
        Value::Array(results) => results,
        Value::Bool(false) => Vec::new(),
        Value::Bool(true)
        | Value::Null
        | Value::Number(_)
        | Value::String(_)
        | Value::Object(_) => {
            let name = rule.rsplit('.').next().unwrap_or_default();
            return Err(unusable(&format!(
                "it is no set of messages. Write `{name} contains message if {{ … }}`"
            )));
        }
    };
    let mut findings = Vec::new();
    for result in results {
        let (message, mut fields) = match result {
            Value::String(message) => (message, serde_json::Map::new()),
            Value::Object(mut fields) => match fields.remove("msg") {
                Some(Value::String(message)) => (message, fields),
                Some(_) | None => return Err(unusable("an object has no text `msg`")),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                return Err(unusable(
                    "it has a value that is neither a text nor an object",
                ));
            }
        };
        let level = match kind {
            RuleKind::Deny => FindingLevel::Deny,
            RuleKind::Warn => FindingLevel::Warn,
            RuleKind::RequireApproval => {
                required_approval(&mut fields).map_err(|problem| unusable(&problem))?
            }
        };
        let finding = PolicyFinding::of_rego(level, rule, &message, RegoKeys::of(fields));
        findings.push(finding.map_err(|error| unusable(&problem_of(&error)))?);
    }
    Ok(findings)
}

/// Takes `count` and `teams` out of a result of a rule `require_approval`. Without a count it is 1, without teams everybody who
/// may approve counts. A key that is not known could be one of them with a typing error.
fn required_approval(fields: &mut serde_json::Map<String, Value>) -> Result<FindingLevel, String> {
    const OTHERS: [&str; 6] = ["resource", "file", "line", "link", "details", "_loc"];

    let approval: serde_json::Map<String, Value> = ["count", "teams"]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), fields.remove(key)?)))
        .collect();
    if let Some(key) = fields.keys().find(|key| !OTHERS.contains(&key.as_str())) {
        return Err(format!(
            "it has the key `{}`. The keys are `msg`, `count`, `teams`, `resource`, `file`, `line`, `link` and `details`",
            one_line(key, 100)
        ));
    }
    FindingLevel::of_approval(Value::Object(approval))
}

/// Returns the problem of a result. The error of the evaluation names the rule.
fn problem_of(error: &ReadError) -> String {
    if let ReadError::Approval { problem, .. } = error {
        return format!(
            "`require_approval` must be an object such as {{\"count\": 2, \"teams\": [\"acme/security\"]}}: {problem}"
        );
    }
    error.to_string()
}

/// Returns a message of the evaluator on one line, such as `deny.rego:3:5: expected ...`.
fn plain(error: &impl Display) -> String {
    /// Maximum number of characters.
    const MOST: usize = 1000;
    let text = format!("{error:#}");
    let place = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("--> "));
    let problem = text
        .split_once("\nerror: ")
        .map_or(text.as_str(), |(_, problem)| problem);
    let problem: Vec<&str> = problem.split_whitespace().collect();
    let problem: String = problem.join(" ").chars().take(MOST).collect();
    match place {
        Some(place) => format!("{place}: {problem}"),
        None => problem,
    }
}

#[cfg(test)]
mod tests;
