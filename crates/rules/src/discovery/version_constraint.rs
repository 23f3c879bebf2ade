//! Parses Terraform's version constraints: `>= 1.5.0, < 2.0.0, != 1.7.1` or `~> 1.9.0` (Terraform documentation,
//! "Version Constraints").
//!
//! They differ from Cargo's and npm's: `~>` only lets the last written number rise, and only a constraint that names
//! a prerelease selects it.

use std::fmt;
use std::str::FromStr;

use semver::{BuildMetadata, Prerelease, Version};

/// Maximum size of a constraint in bytes; people do not write longer ones.
const MAX_BYTES: usize = 512;

/// Conditions on a version that must all be met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionConstraint(Vec<VersionCondition>);

/// Reason why a text is not a version constraint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a version constraint: {reason}")]
pub struct InvalidConstraint {
    text: String,
    reason: String,
}

/// One condition of a constraint: `>= 1.5`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct VersionCondition {
    operator: Operator,
    /// Version to compare with; missing numbers are 0.
    version: Version,
    /// Number of written version numbers, 1 to 3.
    written: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    Other,
    Above,
    AtLeast,
    Below,
    AtMost,
    /// Spelled `~>`: only the last written number may rise.
    Pessimistic,
}

impl Operator {
    /// Operators and their signs, longer ones first, so that `>=` is not read as `>`.
    const ALL: [(&str, Self); 7] = [
        ("~>", Self::Pessimistic),
        (">=", Self::AtLeast),
        ("<=", Self::AtMost),
        ("!=", Self::Other),
        (">", Self::Above),
        ("<", Self::Below),
        ("=", Self::Equal),
    ];

    fn split(text: &str) -> (Self, &str) {
        let found = Self::ALL
            .iter()
            .find_map(|(sign, operator)| Some((*operator, text.strip_prefix(sign)?)));
        found.unwrap_or((Self::Equal, text))
    }

    fn sign(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, operator)| *operator == self)
            .map_or("", |(sign, _)| sign)
    }
}

impl VersionConstraint {
    /// Returns a constraint that only this version meets.
    pub fn exactly(version: Version) -> Self {
        Self(vec![VersionCondition {
            operator: Operator::Equal,
            version,
            written: 3,
        }])
    }

    /// Returns true if a version may be used.
    pub fn matches(&self, version: &Version) -> bool {
        self.0.iter().all(|comparison| comparison.matches(version))
    }

    /// Returns the only version that can match, if a condition names it.
    pub fn exact(&self) -> Option<&Version> {
        self.0
            .iter()
            .find(|one| one.operator == Operator::Equal)
            .map(|one| &one.version)
    }
}

impl VersionCondition {
    fn matches(&self, version: &Version) -> bool {
        let order = version.cmp_precedence(&self.version);
        // "A prerelease is selected with `=` only": a condition that names one does not allow another one either.
        if !version.pre.is_empty() && self.operator != Operator::Equal {
            return false;
        }
        match self.operator {
            Operator::Equal => order.is_eq(),
            Operator::Other => order.is_ne(),
            Operator::Above => order.is_gt(),
            Operator::AtLeast => order.is_ge(),
            Operator::Below => order.is_lt(),
            Operator::AtMost => order.is_le(),
            Operator::Pessimistic => order.is_ge() && self.same_series(version),
        }
    }

    /// Returns true if all numbers before the last written one are equal.
    fn same_series(&self, version: &Version) -> bool {
        match self.written {
            3 => version.major == self.version.major && version.minor == self.version.minor,
            2 => version.major == self.version.major,
            _ => true,
        }
    }
}

impl FromStr for VersionConstraint {
    type Err = InvalidConstraint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |reason: String| InvalidConstraint {
            text: shown(text),
            reason,
        };
        let too_long = || invalid(format!("it is longer than {MAX_BYTES} bytes"));
        if text.len() > MAX_BYTES {
            return Err(too_long());
        }
        if text.trim().is_empty() {
            return Err(invalid("it is empty".to_owned()));
        }
        let read = text
            .split(',')
            .map(|part| VersionCondition::read(part.trim()))
            .collect::<Result<_, _>>();
        let constraint = read.map(Self).map_err(invalid)?;
        // The constraint is stored and shown with its operators and spaces, and parsed again.
        if constraint.to_string().len() > MAX_BYTES {
            Err(too_long())
        } else {
            Ok(constraint)
        }
    }
}

/// Quotes a text of another person, shortened and without characters that would end the quotation.
fn shown(text: &str) -> String {
    const MOST: usize = 60;
    let one_line: String = text
        .chars()
        .map(|c| if c.is_control() || c == '`' { ' ' } else { c })
        .collect();
    if one_line.chars().count() <= MOST {
        one_line
    } else {
        one_line.chars().take(MOST).chain(['…']).collect()
    }
}

impl VersionCondition {
    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("there is nothing between two commas, or after the last".to_owned());
        }
        let (operator, rest) = Operator::split(text);
        let rest = rest.trim_start();
        if rest.is_empty() {
            return Err(format!("there is no version after `{}`", operator.sign()));
        }
        if rest.starts_with(['=', '!', '<', '>', '~', '^']) {
            return Err("the operators are `=`, `!=`, `>`, `>=`, `<`, `<=` and `~>`".to_owned());
        }
        if rest.contains(char::is_whitespace) {
            return Err(format!(
                "write a comma between conditions, not only a space, in `{}`",
                shown(text)
            ));
        }
        let (version, written) = read_version(rest)?;
        Ok(Self {
            operator,
            version,
            written,
        })
    }
}

/// Parses `1`, `v1.9`, `1.9.0-rc1`; missing numbers are 0.
fn read_version(text: &str) -> Result<(Version, usize), String> {
    let refuse = || {
        format!(
            "`{}` is not a version; write one such as `1.9.0`",
            shown(text)
        )
    };
    let bare = text.strip_prefix('v').unwrap_or(text);
    let (rest, build) = bare
        .split_once('+')
        .map_or((bare, ""), |(rest, build)| (rest, build));
    let (numbers, pre) = rest
        .split_once('-')
        .map_or((rest, ""), |(numbers, pre)| (numbers, pre));
    if rest.contains('-') && pre.is_empty() || bare.contains('+') && build.is_empty() {
        return Err(refuse());
    }
    let numbers: Vec<u64> = numbers
        .split('.')
        .map(read_number)
        .collect::<Option<_>>()
        .ok_or_else(refuse)?;
    let written = numbers.len();
    if written > 3 {
        return Err(format!("`{}` has more than three numbers", shown(text)));
    }
    let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
    let version = Version {
        pre: Prerelease::new(pre).map_err(|_| refuse())?,
        build: BuildMetadata::new(build).map_err(|_| refuse())?,
        ..Version::new(number(0), number(1), number(2))
    };
    Ok((version, written))
}

/// Parses digits only, because `u64` itself would also accept a sign.
fn read_number(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

impl fmt::Display for VersionConstraint {
    /// Writes the conditions in one uniform spelling: `>= 1.5, < 2.0.0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&all.join(", "))
    }
}

impl fmt::Display for VersionCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Version {
            major,
            minor,
            patch,
            pre,
            ..
        } = &self.version;
        let numbers: Vec<String> = [major, minor, patch]
            .iter()
            .take(self.written)
            .map(ToString::to_string)
            .collect();
        write!(f, "{} {}", self.operator.sign(), numbers.join("."))?;
        if pre.is_empty() {
            Ok(())
        } else {
            write!(f, "-{pre}")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matching(constraint: &str, versions: &[&str]) -> Vec<String> {
        let constraint: VersionConstraint = constraint.parse().unwrap();
        let all = versions.iter().map(|text| Version::parse(text).unwrap());
        all.filter(|version| constraint.matches(version))
            .map(|version| version.to_string())
            .collect()
    }

    #[test]
    fn each_operator_means_what_terraform_says() {
        const ALL: [&str; 9] = [
            "0.12.31",
            "1.8.5",
            "1.9.0-rc1",
            "1.9.0",
            "1.9.8",
            "1.10.0-beta1",
            "1.10.0",
            "2.0.0-alpha1",
            "2.0.0",
        ];
        let cases = [
            ("1.9.0", "1.9.0"),
            ("= 1.9", "1.9.0"),
            ("v1.9.8", "1.9.8"),
            ("!= 1.9.0", "0.12.31 1.8.5 1.9.8 1.10.0 2.0.0"),
            ("> 1.9.0", "1.9.8 1.10.0 2.0.0"),
            (">=1.9.0", "1.9.0 1.9.8 1.10.0 2.0.0"),
            ("< 1.9.0", "0.12.31 1.8.5"),
            ("<= 1.9.0", "0.12.31 1.8.5 1.9.0"),
            ("~> 1.9.0", "1.9.0 1.9.8"),
            ("~> 1.9.5", "1.9.8"),
            ("~> 1.9", "1.9.0 1.9.8 1.10.0"),
            ("~> 1", "1.8.5 1.9.0 1.9.8 1.10.0 2.0.0"),
            ("~> 0.12", "0.12.31"),
            (">= 1.8, < 1.10, != 1.9.0", "1.8.5 1.9.8"),
            (" >= 1.9 , < 2 ", "1.9.0 1.9.8 1.10.0"),
            (">= 3", ""),
            ("> 1.9, < 1.9", ""),
            // A prerelease is only selected by its own name.
            ("1.9.0-rc1", "1.9.0-rc1"),
            ("= 2.0.0-alpha1", "2.0.0-alpha1"),
            (">= 1.9.0-rc1, < 1.10", "1.9.0 1.9.8"),
            ("~> 1.10.0-beta1", "1.10.0"),
            ("!= 1.9.0-rc1, ~> 1.9.0", "1.9.0 1.9.8"),
            ("= 1.9.0-rc1, != 1.8.5", ""),
        ];
        for (constraint, expected) in cases {
            assert_eq!(
                matching(constraint, &ALL).join(" "),
                expected,
                "{constraint}"
            );
        }
    }

    #[test]
    fn what_is_not_a_constraint_is_refused_with_the_reason() {
        let refusal = |text: &str| text.parse::<VersionConstraint>().unwrap_err().to_string();
        let texts = [
            "",
            " ",
            "latest",
            ">=",
            ">= 1.0,",
            ",1.0",
            ">= 1.0 < 2.0",
            "=> 1.0",
            "~ 1.0",
            "^1.0",
            "1.x",
            "1.2.3.4",
            "1..2",
            "-1.0",
            "1.0-",
            "1.0+",
            "+1.0",
            "1.0.0-ä",
            "99999999999999999999",
            "== 1.0",
            "`1`",
        ];
        insta::assert_snapshot!(texts.map(refusal).join("\n"), @"
        `` is not a version constraint: it is empty
        ` ` is not a version constraint: it is empty
        `latest` is not a version constraint: `latest` is not a version; write one such as `1.9.0`
        `>=` is not a version constraint: there is no version after `>=`
        `>= 1.0,` is not a version constraint: there is nothing between two commas, or after the last
        `,1.0` is not a version constraint: there is nothing between two commas, or after the last
        `>= 1.0 < 2.0` is not a version constraint: write a comma between conditions, not only a space, in `>= 1.0 < 2.0`
        `=> 1.0` is not a version constraint: the operators are `=`, `!=`, `>`, `>=`, `<`, `<=` and `~>`
        `~ 1.0` is not a version constraint: the operators are `=`, `!=`, `>`, `>=`, `<`, `<=` and `~>`
        `^1.0` is not a version constraint: the operators are `=`, `!=`, `>`, `>=`, `<`, `<=` and `~>`
        `1.x` is not a version constraint: `1.x` is not a version; write one such as `1.9.0`
        `1.2.3.4` is not a version constraint: `1.2.3.4` has more than three numbers
        `1..2` is not a version constraint: `1..2` is not a version; write one such as `1.9.0`
        `-1.0` is not a version constraint: `-1.0` is not a version; write one such as `1.9.0`
        `1.0-` is not a version constraint: `1.0-` is not a version; write one such as `1.9.0`
        `1.0+` is not a version constraint: `1.0+` is not a version; write one such as `1.9.0`
        `+1.0` is not a version constraint: `+1.0` is not a version; write one such as `1.9.0`
        `1.0.0-ä` is not a version constraint: `1.0.0-ä` is not a version; write one such as `1.9.0`
        `99999999999999999999` is not a version constraint: `99999999999999999999` is not a version; write one such as `1.9.0`
        `== 1.0` is not a version constraint: the operators are `=`, `!=`, `>`, `>=`, `<`, `<=` and `~>`
        ` 1 ` is not a version constraint: ` 1 ` is not a version; write one such as `1.9.0`
        ");
        assert!(refusal(&"1,".repeat(400)).contains("longer than 512 bytes"));
        let shown_longer = vec!["1"; 200].join(",");
        assert!(
            shown_longer.len() < MAX_BYTES
                && refusal(&shown_longer).contains("longer than 512 bytes")
        );
    }

    #[test]
    fn the_one_version_that_can_match_is_known() {
        let exact = |text: &str| {
            text.parse::<VersionConstraint>()
                .unwrap()
                .exact()
                .map(ToString::to_string)
        };
        assert_eq!(exact("1.9"), Some("1.9.0".to_owned()));
        assert_eq!(exact(">= 1, = 1.9.8"), Some("1.9.8".to_owned()));
        assert_eq!(exact("~> 1.9.8"), None);
        let this = Version::new(1, 9, 8);
        assert!(VersionConstraint::exactly(this.clone()).matches(&this));
    }

    fn version() -> impl Strategy<Value = Version> {
        let pre = prop_oneof![4 => Just(""), 1 => Just("rc1"), 1 => Just("beta2")];
        (0..4_u64, 0..4_u64, 0..4_u64, pre).prop_map(|(major, minor, patch, pre)| Version {
            pre: Prerelease::new(pre).unwrap(),
            ..Version::new(major, minor, patch)
        })
    }

    fn release() -> impl Strategy<Value = Version> {
        version().prop_map(|version| Version::new(version.major, version.minor, version.patch))
    }

    fn constraint() -> impl Strategy<Value = String> {
        let sign = prop::sample::select(vec!["", "=", "!=", ">", ">=", "<", "<=", "~>"]);
        let one = (sign, version(), 1..=3_usize).prop_map(|(sign, version, written)| {
            let numbers = [version.major, version.minor, version.patch];
            let numbers: Vec<String> = numbers
                .iter()
                .take(written)
                .map(ToString::to_string)
                .collect();
            let pre = if version.pre.is_empty() {
                String::new()
            } else {
                format!("-{}", version.pre)
            };
            format!("{sign} {}{pre}", numbers.join("."))
        });
        prop::collection::vec(one, 1..4).prop_map(|all| all.join(","))
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in r"(?s).{0,40}", signs in r"[~>=<!v0-9.,+ -]{0,30}") {
            for text in [text, signs] {
                let _read = text.parse::<VersionConstraint>();
            }
        }

        #[test]
        fn what_is_shown_means_the_same(text in constraint(), versions in prop::collection::vec(version(), 20)) {
            let constraint: VersionConstraint = text.parse().unwrap();
            let again: VersionConstraint = constraint.to_string().parse().unwrap();
            prop_assert_eq!(again.to_string(), constraint.to_string());
            for version in versions {
                prop_assert_eq!(constraint.matches(&version), again.matches(&version));
            }
        }

        #[test]
        fn a_comma_means_and(left in constraint(), right in constraint(), version in version()) {
            let read = |text: &str| text.parse::<VersionConstraint>().unwrap();
            let both = read(&format!("{left}, {right}"));
            prop_assert_eq!(both.matches(&version), read(&left).matches(&version) && read(&right).matches(&version));
        }

        #[test]
        fn opposites_share_no_release(limit in release(), version in release()) {
            let holds = |sign: &str| format!("{sign} {limit}").parse::<VersionConstraint>().unwrap().matches(&version);
            prop_assert_ne!(holds("="), holds("!="));
            prop_assert_ne!(holds("<"), holds(">="));
            prop_assert_ne!(holds(">"), holds("<="));
            prop_assert!(!holds("~>") || holds(">="));
        }
    }
}
