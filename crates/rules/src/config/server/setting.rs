//! Describes a setting: one row of the table in [`super::table`].

/// Groups in which help and documentation show the settings, so that nobody has to look through all of them at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingGroup {
    /// Repositories and pulls to serve.
    Repositories,
    /// Address of GitHub, and the credentials of Lockkeeper there.
    Github,
    /// Secrets that prove that a webhook comes from GitHub.
    Webhooks,
    /// Addresses of the web server, and its users.
    Web,
    /// Database, mirrors, plan files and other data of the server.
    Storage,
    /// Rules about permitted actions.
    Permissions,
    /// Commands in comments, and the replies.
    Comments,
    /// Automatic plans, and the search for projects.
    Planning,
    /// Locks and their queues.
    Locks,
    /// Programs that run the code, and their limits.
    Terraform,
    /// The log, and the migration from Atlantis.
    Operation,
}

impl SettingGroup {
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

    /// Returns the heading of the group.
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

/// Kind of the value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Any text without a special form.
    Text,
    /// A text that is never shown.
    Secret,
    /// Several secrets. The flag may be repeated, and the variable holds one secret per line. Commas do not separate
    /// them, because a secret may contain commas.
    Secrets,
    /// Texts separated by commas.
    List,
    /// `true` or `false`; the bare flag means `true`.
    Switch,
    /// A whole number between two bounds.
    Number(u64, u64),
    /// A duration such as `90m`.
    Duration,
    /// An amount of bytes such as `20GiB`.
    Size,
    /// A file or folder; `~/` is the home folder, a relative path starts at the working folder.
    Path,
    /// One word of a fixed list.
    Choice(&'static [&'static str]),
}

impl ValueKind {
    /// Returns true if the value must never be shown.
    pub const fn is_secret(self) -> bool {
        matches!(self, Self::Secret | Self::Secrets)
    }
}

/// Default of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The setting has no default.
    Unset,
    /// The same default in every mode.
    Value(&'static str),
    /// A different default with `--compat atlantis`.
    Differs {
        /// Default of a server without `--compat`.
        ours: &'static str,
        /// Default with `--compat atlantis`.
        atlantis: &'static str,
    },
    /// A default that follows from other settings, described in words.
    Derived(&'static str),
}

/// One setting of the server.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name of the flag, without dashes.
    pub flag: &'static str,
    /// Other names of the flag.
    pub aliases: &'static [&'static str],
    /// Placeholder for the value in help.
    pub value_name: &'static str,
    /// Kind of the value.
    pub kind: ValueKind,
    /// Default of the setting.
    pub default: Fallback,
    /// Group in which help and documentation show the setting.
    pub group: SettingGroup,
    /// Description in one line.
    pub help: &'static str,
}

impl Setting {
    /// Creates a setting without default and aliases.
    pub const fn new(
        group: SettingGroup,
        flag: &'static str,
        value_name: &'static str,
        kind: ValueKind,
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

    /// Creates a setting that is on or off, and off by default.
    pub const fn switch(group: SettingGroup, flag: &'static str, help: &'static str) -> Self {
        Self::new(group, flag, "BOOL", ValueKind::Switch, help).or("false")
    }

    /// Sets a default that is the same in every mode.
    #[must_use]
    pub const fn or(mut self, value: &'static str) -> Self {
        self.default = Fallback::Value(value);
        self
    }

    /// Sets a default that differs with `--compat atlantis`.
    #[must_use]
    pub const fn or_with_compat(mut self, ours: &'static str, atlantis: &'static str) -> Self {
        self.default = Fallback::Differs { ours, atlantis };
        self
    }

    /// Describes in words a default that follows from other settings.
    #[must_use]
    pub const fn or_derived(mut self, words: &'static str) -> Self {
        self.default = Fallback::Derived(words);
        self
    }

    /// Sets the other names of the flag.
    #[must_use]
    pub const fn also(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Returns the variables of the setting, in the order in which they are read: `LOCKKEEPER_X`, `ATLANTIS_X`, then
    /// those of the aliases.
    pub fn variables(&self) -> impl Iterator<Item = String> {
        let names = std::iter::once(self.flag).chain(self.aliases.iter().copied());
        names.flat_map(|name| PREFIXES.map(|prefix| variable(prefix, name)))
    }

    /// Returns the recommended variable.
    pub fn variable(&self) -> String {
        variable(PREFIXES[0], self.flag)
    }

    /// Returns the default as text, if there is one.
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

/// Prefixes of variables. An earlier one overrides a later one (design section 8).
pub const PREFIXES: [&str; 2] = ["LOCKKEEPER_", "ATLANTIS_"];

/// Returns the name of a variable: `("ATLANTIS_", "gh-user")` gives `ATLANTIS_GH_USER` (reference 10).
pub fn variable(prefix: &str, flag: &str) -> String {
    format!("{prefix}{}", flag.to_ascii_uppercase().replace('-', "_"))
}

/// Choice of the defaults that differ between Lockkeeper and Atlantis (design section 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compat {
    /// Uses the defaults of Lockkeeper.
    #[default]
    None,
    /// Uses the defaults of Atlantis.
    Atlantis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_read_under_our_name_first() {
        let setting = Setting::new(
            SettingGroup::Web,
            "atlantis-url",
            "URL",
            ValueKind::Text,
            "",
        )
        .also(&["public-url"]);
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
