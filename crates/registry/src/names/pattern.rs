//! Patterns of names, as scopes of tokens and rules have them.

use std::fmt;
use std::str::FromStr;

use lockkeeper_model::model::text_type;

use super::prefix::begins_with;
use super::{
    GoPath, GoPrefix, InvalidGoPath, InvalidModuleName, ModuleName, NameKind, NamePrefix,
    Namespace, RegistryName,
};

/// A set of names.
///
/// | Pattern | Names |
/// |---|---|
/// | `*` | all names |
/// | `module *` | all modules of Terraform |
/// | `module acme/*` | the modules of a namespace |
/// | `module acme/vpc/*` | a module for all systems |
/// | `module acme/vpc/aws` | one module |
/// | `go *` | all Go modules |
/// | `go example.com/net/...` | a path and all paths below it |
/// | `go example.com/net` | one Go module |
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NamePattern {
    /// All names of all kinds.
    All,
    /// Modules of Terraform with any name.
    Modules,
    /// All modules of a namespace.
    Namespace(Namespace),
    /// A module for all systems: namespace, and name in lower case.
    Systems(Namespace, String),
    /// One module of Terraform.
    Module(ModuleName),
    /// Modules of Go with any path.
    GoModules,
    /// A path of Go modules, and all paths below it.
    GoBelow(GoPrefix),
    /// The Go module with this path alone.
    Go(GoPath),
}

/// A text is not a pattern of names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNamePattern {
    /// The pattern does not begin with a known kind.
    #[error(
        "a pattern of names is `*`, or a kind and names of it: `module acme/*`, `module acme/vpc/aws`, \
         `go example.com/net/...`, `go example.com/net`"
    )]
    Kind,
    /// The text is the beginning of names of modules. The field is the pattern of these names.
    #[error(
        "a module is named by three parts, `<namespace>/<name>/<system>`. For all modules with this beginning, write `{0}`"
    )]
    Beginning(String),
    /// The text is not the name of a module of Terraform, or the beginning of one.
    #[error(transparent)]
    Module(#[from] InvalidModuleName),
    /// The text is not the path of a Go module, or the beginning of one.
    #[error(transparent)]
    Go(#[from] InvalidGoPath),
}

impl NamePattern {
    /// Returns true if the name is one of the set.
    pub fn matches(&self, name: &RegistryName) -> bool {
        match (self, name) {
            (Self::All, _)
            | (Self::Modules, RegistryName::Module(_))
            | (Self::GoModules, RegistryName::Go(_)) => true,
            (Self::Namespace(namespace), RegistryName::Module(name)) => {
                name.namespace() == *namespace
            }
            (Self::Systems(namespace, middle), RegistryName::Module(name)) => {
                name.namespace() == *namespace && name.name() == middle
            }
            (Self::Module(module), RegistryName::Module(name)) => module == name,
            (Self::GoBelow(prefix), RegistryName::Go(path)) => prefix.covers(path),
            (Self::Go(module), RegistryName::Go(path)) => module == path,
            (
                Self::Modules | Self::Namespace(_) | Self::Systems(..) | Self::Module(_),
                RegistryName::Go(_),
            )
            | (Self::GoModules | Self::GoBelow(_) | Self::Go(_), RegistryName::Module(_)) => false,
        }
    }
}

/// Kind and first elements of the names of a set.
struct PatternNames {
    /// `None`: names of all kinds.
    kind: Option<NameKind>,
    /// First elements, or all of them. Empty: any name.
    beginning: String,
    /// True if only the name that is the beginning is in the set.
    is_one: bool,
}

impl PatternNames {
    /// Returns true if all names of this set are in another one.
    fn are_among(&self, others: &Self) -> bool {
        let is_kind = others.kind.is_none() || self.kind == others.kind;
        let is_below = if others.is_one {
            self.is_one && self.beginning == others.beginning
        } else {
            others.beginning.is_empty() || begins_with(&self.beginning, &others.beginning)
        };
        is_kind && is_below
    }
}

impl NamePattern {
    /// Returns true if all names of this set are in another one. Case does not count, because a name in another case could
    /// stand in for one of the set.
    pub fn is_within(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.names(), other.names());
        ours.beginning.make_ascii_lowercase();
        theirs.beginning.make_ascii_lowercase();
        ours.are_among(&theirs)
    }

    /// Returns true if another set [matches](Self::matches) all names of this one, in their case.
    pub fn is_covered_by(&self, other: &Self) -> bool {
        self.names().are_among(&other.names())
    }

    /// Returns true if the pattern has the name, and only names of this set. A pattern for all names can be meant for others.
    pub fn names_within(&self, name: &RegistryName, set: &Self) -> bool {
        !self.is_for_all() && self.matches(name) && self.is_within(set)
    }

    /// Returns true for a set of all names, or of all names of a kind.
    pub fn is_for_all(&self) -> bool {
        match self {
            Self::All | Self::Modules | Self::GoModules => true,
            Self::Namespace(_)
            | Self::Systems(..)
            | Self::Module(_)
            | Self::GoBelow(_)
            | Self::Go(_) => false,
        }
    }

    fn names(&self) -> PatternNames {
        let (kind, beginning, is_one) = match self {
            Self::All => (None, String::new(), false),
            Self::Modules => (Some(NameKind::Module), String::new(), false),
            Self::Namespace(namespace) => {
                (Some(NameKind::Module), namespace.as_str().to_owned(), false)
            }
            Self::Systems(namespace, name) => {
                (Some(NameKind::Module), format!("{namespace}/{name}"), false)
            }
            Self::Module(name) => (Some(NameKind::Module), name.as_str().to_owned(), true),
            Self::GoModules => (Some(NameKind::Go), String::new(), false),
            Self::GoBelow(prefix) => (Some(NameKind::Go), prefix.as_str().to_owned(), false),
            Self::Go(path) => (Some(NameKind::Go), path.as_str().to_owned(), true),
        };
        PatternNames {
            kind,
            beginning,
            is_one,
        }
    }
}

impl From<NamePrefix> for NamePattern {
    fn from(prefix: NamePrefix) -> Self {
        match prefix {
            NamePrefix::Namespace(namespace) => Self::Namespace(namespace),
            NamePrefix::Go(prefix) => Self::GoBelow(prefix),
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Modules => f.write_str("module *"),
            Self::Namespace(namespace) => write!(f, "module {namespace}/*"),
            Self::Systems(namespace, name) => write!(f, "module {namespace}/{name}/*"),
            Self::Module(name) => write!(f, "module {name}"),
            Self::GoModules => f.write_str("go *"),
            Self::GoBelow(prefix) => write!(f, "go {prefix}/..."),
            Self::Go(path) => write!(f, "go {path}"),
        }
    }
}

impl FromStr for NamePattern {
    type Err = InvalidNamePattern;

    fn from_str(text: &str) -> Result<Self, InvalidNamePattern> {
        if text == "*" {
            return Ok(Self::All);
        }
        let (kind, names) = text.split_once(' ').ok_or(InvalidNamePattern::Kind)?;
        match kind {
            "module" => module_pattern(names),
            "go" => go_pattern(names),
            _ => Err(InvalidNamePattern::Kind),
        }
    }
}

text_type!(NamePattern);

fn module_pattern(names: &str) -> Result<NamePattern, InvalidNamePattern> {
    if names == "*" {
        return Ok(NamePattern::Modules);
    }
    let Some(beginning) = names.strip_suffix("/*") else {
        return match names.parse::<ModuleName>() {
            Ok(module) => Ok(NamePattern::Module(module)),
            Err(InvalidModuleName::Parts) => Err(match module_pattern(&format!("{names}/*")) {
                Ok(meant) => InvalidNamePattern::Beginning(meant.to_string()),
                Err(_) => InvalidModuleName::Parts.into(),
            }),
            Err(error) => Err(error.into()),
        };
    };
    let Some((namespace, name)) = beginning.split_once('/') else {
        return Ok(NamePattern::Namespace(beginning.parse()?));
    };
    // A name follows the same rules with any system.
    let module: ModuleName = format!("{namespace}/{name}/any").parse()?;
    Ok(NamePattern::Systems(
        module.namespace(),
        module.name().to_owned(),
    ))
}

fn go_pattern(names: &str) -> Result<NamePattern, InvalidNamePattern> {
    if names == "*" {
        return Ok(NamePattern::GoModules);
    }
    Ok(match names.strip_suffix("/...") {
        Some(prefix) => NamePattern::GoBelow(prefix.parse()?),
        None => NamePattern::Go(names.parse()?),
    })
}
