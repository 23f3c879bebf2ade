//! Checks flags and variables that are not in the table of settings: unknown ones, and those of Atlantis that this
//! version does not have.

use super::SETTINGS;
use super::absent::{ABSENT, AbsentReason, UnsupportedFlag};
use super::kinds::malformed;
use super::problems::{StartupProblem, StartupWarning};
use super::raw::{GivenValue, RawSettings, SettingSource, is_service_link};
use super::reader::{SettingReader, parse_switch};
use super::setting::{PREFIXES, Setting, ValueKind, variable};
use crate::config::variables::STORE_VARIABLES;

/// Returns the problem for an unknown flag. `name` is without dashes.
pub fn unknown_flag(name: &str) -> StartupProblem {
    let fix = match nearest(name) {
        Some(flag) => format!("did you mean --{flag}?"),
        None => "remove it; `lockkeeper server --help` shows all flags".to_owned(),
    };
    StartupProblem::about(format!("--{name}"), "this flag does not exist", fix)
}

/// Returns the flag with the most similar name, including flags that this version does not have.
pub(super) fn nearest_flag(name: &str) -> Option<&'static str> {
    nearest(name).or_else(|| nearest_of(name, ABSENT.iter().map(|absent| absent.flag)))
}

/// Reports all problems of unknown and missing flags in the raw settings.
pub(super) fn check(reader: &mut SettingReader<'_>) {
    let raw = reader.raw();
    for absent in ABSENT {
        if let Some(given) = given(raw, absent) {
            check_value(reader, absent, &given);
        }
    }
    warn_of_service_links(reader);
    raw.settings_file
        .warning()
        .into_iter()
        .for_each(|warning| reader.warn(warning));
    for name in raw
        .variables
        .keys()
        .filter(|name| is_unknown_variable(name))
    {
        reader.warn(StartupWarning::about(unknown_variable(name)));
    }
}

fn given<'a>(raw: &'a RawSettings, absent: &UnsupportedFlag) -> Option<GivenValue<'a>> {
    let by_variable = || {
        absent
            .variables()
            .into_iter()
            .find_map(|name| raw.named_variable(name, true))
    };
    raw.flag(absent.flag)
        .or_else(by_variable)
        .or_else(|| raw.in_file(absent.flag))
}

fn is_harmless(absent: &UnsupportedFlag, text: &str) -> bool {
    let text = text.trim();
    let says_no = absent.is_switch() && parse_switch(text) == Some(false);
    let is_below_zero =
        || absent.flag == "checkout-depth" && text.parse().is_ok_and(|depth: i64| depth < 0);
    says_no
        || is_below_zero()
        || is_service_link(text)
        || absent
            .harmless
            .iter()
            .any(|harmless| harmless.eq_ignore_ascii_case(text))
}

/// Returns the warning for people who switch off a feature that is always on.
fn always_on_warning(absent: &UnsupportedFlag, text: &str) -> Option<&'static str> {
    absent
        .off
        .filter(|_| parse_switch(text.trim()) == Some(false))
}

/// Checks the value of a missing flag. An invalid value is reported even if the flag has no effect.
fn check_value(reader: &mut SettingReader<'_>, absent: &UnsupportedFlag, given: &GivenValue<'_>) {
    if let (Some(way_out), AbsentReason::Always(why)) =
        (always_on_warning(absent, given.text), absent.reason)
    {
        let subject = subject(absent);
        return reader.warn(StartupWarning::about(format!(
            "{subject}: cannot be switched off here: {why}; {way_out}"
        )));
    }
    if is_harmless(absent, given.text) {
        return;
    }
    match malformed(absent.kind, given.text.trim()) {
        Some((what, fix)) => {
            let what = format!("{what} (set by {})", given.source);
            reader.record(StartupProblem::about(subject(absent), what, fix));
        }
        None => report(reader, absent, given),
    }
}

/// Warns about variables with the address of a service. Kubernetes puts `ATLANTIS_PORT=tcp://10.0.0.1:80` into the
/// environment of every pod beside a service called `atlantis` (reference 10).
fn warn_of_service_links(reader: &mut SettingReader<'_>) {
    let settings = SETTINGS
        .iter()
        .filter(|setting| matches!(setting.kind, ValueKind::Number(..)));
    let absent = ABSENT
        .iter()
        .filter(|absent| matches!(absent.kind, ValueKind::Number(..)));
    let names = settings
        .flat_map(Setting::variables)
        .chain(absent.flat_map(UnsupportedFlag::variables));
    let raw = reader.raw();
    for name in names.filter(|name| {
        raw.variables
            .get(name)
            .is_some_and(|text| is_service_link(text))
    }) {
        reader.warn(StartupWarning::about(format!(
            "{name}: ignored, because it contains the address of a Kubernetes service instead of a number; to remove such \
             variables, set `enableServiceLinks: false` in the pod"
        )));
    }
}

fn subject(absent: &UnsupportedFlag) -> String {
    format!("--{} ({})", absent.flag, absent.variables()[0])
}

fn report(reader: &mut SettingReader<'_>, absent: &UnsupportedFlag, given: &GivenValue<'_>) {
    let subject = subject(absent);
    let fix = match given.by {
        SettingSource::Flag | SettingSource::Variable => format!("remove {}", given.source),
        SettingSource::File => format!("remove it from {}", given.source),
    };
    match absent.reason {
        AbsentReason::NotYet => {
            reader.record(StartupProblem::about(
                subject,
                "not available in this version yet",
                fix,
            ));
        }
        AbsentReason::Instead(why) => {
            reader.record(StartupProblem::about(
                subject,
                format!("not supported: {why}"),
                fix,
            ));
        }
        AbsentReason::Always(why) => reader.warn(StartupWarning::about(format!(
            "{subject}: not needed: {why}"
        ))),
        AbsentReason::WithoutEffect(why) => reader.warn(StartupWarning::without_effect(format!(
            "{subject} has no effect: {why}"
        ))),
    }
}

/// Returns true for an unknown variable with the prefix of Lockkeeper. Variables with the prefix of Atlantis are
/// ignored, because an unknown name may belong to another program.
fn is_unknown_variable(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIXES[0]) else {
        return false;
    };
    let is_service_link = rest.starts_with("SERVICE_") || rest.starts_with("PORT_");
    let is_setting = || {
        SETTINGS
            .iter()
            .any(|setting| setting.variables().any(|known| known == name))
    };
    let is_absent = || {
        ABSENT
            .iter()
            .any(|absent| absent.variables().contains(&name.to_owned()))
    };
    // The server checks their names when it opens the store.
    let is_of_store = name.starts_with(STORE_VARIABLES);
    !is_service_link && !is_of_store && !is_setting() && !is_absent()
}

fn unknown_variable(name: &str) -> String {
    let flag = name
        .trim_start_matches(PREFIXES[0])
        .to_ascii_lowercase()
        .replace('_', "-");
    let hint =
        nearest(&flag).map(|flag| format!("; did you mean {}?", variable(PREFIXES[0], flag)));
    format!(
        "{name}: ignored, because this setting does not exist{}",
        hint.unwrap_or_default()
    )
}

/// Returns the setting with the most similar name, if one is similar enough.
fn nearest(name: &str) -> Option<&'static str> {
    let names = SETTINGS
        .iter()
        .flat_map(|setting| std::iter::once(setting.flag).chain(setting.aliases.iter().copied()));
    nearest_of(name, names)
}

fn nearest_of(name: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let scored = names.map(|flag| (strsim::jaro_winkler(flag, name), flag));
    let (score, flag) = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (score > 0.85).then_some(flag)
}
