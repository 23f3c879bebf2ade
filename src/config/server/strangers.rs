//! Flags and variables that are not in the table of settings: unknown ones, and those of Atlantis that this
//! version does not have.

use super::absent::{ABSENT, Absent, Reason};
use super::problems::{Problem, Warning};
use super::raw::{Given, RawSettings, is_service_link};
use super::reader::{Reader, parse_switch};
use super::setting::{PREFIXES, variable};
use super::table::SETTINGS;

/// The problem with a flag that nobody knows; `name` is without dashes.
pub fn unknown_flag(name: &str) -> Problem {
    let fix = match nearest(name) {
        Some(flag) => format!("did you mean --{flag}?"),
        None => "remove it; `lockkeeper server --help` shows all flags".to_owned(),
    };
    Problem::about(format!("--{name}"), "there is no such flag", fix)
}

/// Reports everything about strangers that can be seen in the raw settings.
pub(super) fn check(reader: &mut Reader<'_>) {
    let raw = reader.raw();
    for absent in ABSENT {
        if let Some(given) = given(raw, absent) {
            report(reader, absent, &given);
        }
    }
    for name in raw.variables.keys().filter(|name| is_unknown_variable(name)) {
        reader.warn(Warning::about(unknown_variable(name)));
    }
}

fn given<'a>(raw: &'a RawSettings, absent: &Absent) -> Option<Given<'a>> {
    let by_variable = || absent.variables().into_iter().find_map(|name| raw.named_variable(name, true));
    let given = raw.flag(absent.flag).or_else(by_variable)?;
    (!is_harmless(absent, given.text)).then_some(given)
}

fn is_harmless(absent: &Absent, text: &str) -> bool {
    let text = text.trim();
    let says_no = absent.is_switch && parse_switch(text) == Some(false);
    says_no || is_service_link(text) || absent.harmless.iter().any(|harmless| harmless.eq_ignore_ascii_case(text))
}

fn report(reader: &mut Reader<'_>, absent: &Absent, given: &Given<'_>) {
    let subject = format!("--{} ({})", absent.flag, absent.variables()[0]);
    let fix = format!("remove {}", given.source);
    match absent.reason {
        Reason::NotYet => {
            reader.record(Problem::about(subject, "not available in this version yet", fix));
        }
        Reason::Instead(why) => {
            reader.record(Problem::about(subject, format!("not supported: {why}"), fix));
        }
        Reason::Always(why) => reader.warn(Warning::about(format!("{subject}: not needed: {why}"))),
    }
}

/// Variables of Atlantis are not looked at: a name we do not know may mean anything there.
fn is_unknown_variable(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIXES[0]) else { return false };
    let is_service_link = rest.starts_with("SERVICE_") || rest.starts_with("PORT_");
    let is_setting = || SETTINGS.iter().any(|setting| setting.variables().any(|known| known == name));
    let is_absent = || ABSENT.iter().any(|absent| absent.variables().contains(&name.to_owned()));
    !is_service_link && !is_setting() && !is_absent()
}

fn unknown_variable(name: &str) -> String {
    let flag = name.trim_start_matches(PREFIXES[0]).to_ascii_lowercase().replace('_', "-");
    let hint = nearest(&flag).map(|flag| format!("; did you mean {}?", variable(PREFIXES[0], flag)));
    format!("{name}: there is no such setting, it is ignored{}", hint.unwrap_or_default())
}

/// The known flag that is spelled most like it, if any is.
fn nearest(name: &str) -> Option<&'static str> {
    let names =
        SETTINGS.iter().flat_map(|setting| std::iter::once(setting.flag).chain(setting.aliases.iter().copied()));
    let scored = names.map(|flag| (strsim::jaro_winkler(flag, name), flag));
    let (score, flag) = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (score > 0.85).then_some(flag)
}
