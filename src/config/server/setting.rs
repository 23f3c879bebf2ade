//! What a setting is: one row of the table in [`super::table`].

/// The most values a person should have to look through at once: settings are shown in these groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Which repositories and pulls are served.
    Repositories,
    /// How GitHub is reached and who Lockkeeper is there.
    Github,
    /// What proves that a webhook is GitHub's.
    Webhooks,
    /// Where the server listens and who may look.
    Web,
    /// Where it keeps things.
    Storage,
    /// Who may do what.
    Permissions,
    /// What comments may ask for and what is answered.
    Comments,
    /// When a plan is made by itself.
    Planning,
    /// Whether locks are taken, and who waits for them.
    Locks,
    /// Which program runs the code, and how long.
    Terraform,
    /// What is logged, and how to move over from Atlantis.
    Operation,
}

impl Group {
    /// Every group, in the order of help and documentation.
    pub const ALL: &'static [Self] = &[
        Self::Repositories,
        Self::Github,
        Self::Webhooks,
        Self::Web,
        Self::Storage,
        Self::Permissions,
        Self::Comments,
        Self::Planning,
        Self::Locks,
        Self::Terraform,
        Self::Operation,
    ];

    /// Heading for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Repositories => "Repositories",
            Self::Github => "GitHub",
            Self::Webhooks => "Webhooks",
            Self::Web => "Web server",
            Self::Storage => "Storage",
            Self::Permissions => "Permissions",
            Self::Comments => "Commands and comments",
            Self::Planning => "Planning",
            Self::Locks => "Locks",
            Self::Terraform => "Terraform and OpenTofu",
            Self::Operation => "Operation",
        }
    }
}

/// What kind of value a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A text that is never shown.
    Secret,
    /// Several secrets: the flag may be repeated, the variable holds one per line. Never split at commas,
    /// which a secret may contain.
    Secrets,
    /// Texts separated by commas.
    List,
    /// `true` or `false`; the bare flag means `true`.
    Switch,
    /// A whole number between two bounds.
    Number(u64, u64),
    /// A length of time such as `90m`.
    Duration,
    /// An amount of bytes such as `20GiB`.
    Size,
    /// A file or folder; `~/` is the home folder, a relative path starts at the working folder.
    Path,
    /// One of some words.
    Choice(&'static [&'static str]),
}

impl Kind {
    /// Whether the value must not be shown anywhere.
    pub const fn is_secret(self) -> bool {
        matches!(self, Self::Secret | Self::Secrets)
    }
}

/// What holds where nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Nothing.
    Unset,
    /// This value.
    Value(&'static str),
    /// A default that is another one with `--compat atlantis`.
    Differs {
        /// Without `--compat`.
        ours: &'static str,
        /// With `--compat atlantis`.
        atlantis: &'static str,
    },
    /// Follows from other settings, in these words.
    Derived(&'static str),
}

/// One setting of the server.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name of the flag, without dashes.
    pub flag: &'static str,
    /// Other names of the flag that mean the same.
    pub aliases: &'static [&'static str],
    /// What stands for the value in help.
    pub value_name: &'static str,
    /// Kind of value.
    pub kind: Kind,
    /// What holds otherwise.
    pub default: Fallback,
    /// Where it is shown.
    pub group: Group,
    /// What it is for, in one line.
    pub help: &'static str,
}

impl Setting {
    /// A setting without default and aliases.
    pub const fn new(
        group: Group,
        flag: &'static str,
        value_name: &'static str,
        kind: Kind,
        help: &'static str,
    ) -> Self {
        Self {
            flag,
            aliases: &[],
            value_name,
            kind,
            default: Fallback::Unset,
            group,
            help,
        }
    }

    /// A setting that is on or off, and off by default.
    pub const fn switch(group: Group, flag: &'static str, help: &'static str) -> Self {
        Self::new(group, flag, "BOOL", Kind::Switch, help).or("false")
    }

    /// Gives it a default.
    #[must_use]
    pub const fn or(mut self, value: &'static str) -> Self {
        self.default = Fallback::Value(value);
        self
    }

    /// Gives it a default that carries a name.
    #[must_use]
    pub const fn or_with_compat(mut self, ours: &'static str, atlantis: &'static str) -> Self {
        self.default = Fallback::Differs { ours, atlantis };
        self
    }

    /// Says in words what holds otherwise.
    #[must_use]
    pub const fn or_derived(mut self, words: &'static str) -> Self {
        self.default = Fallback::Derived(words);
        self
    }

    /// Gives it other names.
    #[must_use]
    pub const fn also(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// The variables that are read, in this order: `LOCKKEEPER_X`, `ATLANTIS_X`, then those of the aliases.
    pub fn variables(&self) -> impl Iterator<Item = String> {
        let names = std::iter::once(self.flag).chain(self.aliases.iter().copied());
        names.flat_map(|name| PREFIXES.map(|prefix| variable(prefix, name)))
    }

    /// The variable to recommend.
    pub fn variable(&self) -> String {
        variable(PREFIXES[0], self.flag)
    }

    /// The default as text, if there is one.
    pub const fn default_text(&self, compat: Compat) -> Option<&'static str> {
        match (self.default, compat) {
            (Fallback::Unset | Fallback::Derived(_), _) => None,
            (Fallback::Value(value), _)
            | (Fallback::Differs { ours: value, .. }, Compat::None)
            | (
                Fallback::Differs {
                    atlantis: value, ..
                },
                Compat::Atlantis,
            ) => Some(value),
        }
    }
}

/// What the names of variables begin with, the first one wins (design section 8).
pub const PREFIXES: [&str; 2] = ["LOCKKEEPER_", "ATLANTIS_"];

/// `("ATLANTIS_", "gh-user")` is `ATLANTIS_GH_USER` (reference 10).
pub fn variable(prefix: &str, flag: &str) -> String {
    format!("{prefix}{}", flag.to_ascii_uppercase().replace('-', "_"))
}

/// Whose defaults hold where a default carries a name (design section 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compat {
    /// Lockkeeper's.
    #[default]
    None,
    /// Those of Atlantis.
    Atlantis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_read_under_our_name_first() {
        let setting =
            Setting::new(Group::Web, "atlantis-url", "URL", Kind::Text, "").also(&["public-url"]);
        let names: Vec<String> = setting.variables().collect();
        assert_eq!(
            names,
            [
                "LOCKKEEPER_ATLANTIS_URL",
                "ATLANTIS_ATLANTIS_URL",
                "LOCKKEEPER_PUBLIC_URL",
                "ATLANTIS_PUBLIC_URL"
            ]
        );
    }
}
