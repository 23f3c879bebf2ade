//! Describes one setting of the server.

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
    /// The registry of modules.
    Registry,
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
        Self::Registry,
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
            Self::Registry => "Registry",
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
    /// Access of runs to the file or folder that the setting names. Only settings of the kind [`ValueKind::Path`] have
    /// it.
    pub in_runs: Option<RunAccess>,
    /// True if the server does not start without the file that the setting names.
    pub must_exist: bool,
}

/// Access of runs to a file or folder of the server, and a description of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAccess {
    /// No access at all: it contains secrets.
    None(&'static str),
    /// Reading only: the server relies on it.
    Read(&'static str),
    /// The access that runs have to all other files.
    AsOthers,
}

/// Constructors and methods for the entries of a [section](super::section!). Each constructor makes a setting of
/// one kind, without default and aliases.
impl Setting {
    const fn new(
        group: SettingGroup,
        help: &'static str,
        flag: &'static str,
        value_name: &'static str,
        kind: ValueKind,
    ) -> Self {
        Self {
            flag,
            aliases: &[],
            value_name,
            kind,
            default: Fallback::Unset,
            group,
            help,
            in_runs: None,
            must_exist: false,
        }
    }

    /// Creates a setting that takes any text.
    pub const fn text(
        group: SettingGroup,
        help: &'static str,
        flag: &'static str,
        value_name: &'static str,
    ) -> Self {
        Self::new(group, help, flag, value_name, ValueKind::Text)
    }

    /// Creates a setting whose value is never shown.
    pub const fn secret(
        group: SettingGroup,
        help: &'static str,
        flag: &'static str,
        value_name: &'static str,
    ) -> Self {
        Self::new(group, help, flag, value_name, ValueKind::Secret)
    }

    /// Creates a setting that takes several secrets.
    pub const fn secrets(
        group: SettingGroup,
        help: &'static str,
        flag: &'static str,
        value_name: &'static str,
    ) -> Self {
        Self::new(group, help, flag, value_name, ValueKind::Secrets)
    }

    /// Creates a setting that takes texts separated by commas.
    pub const fn list(
        group: SettingGroup,
        help: &'static str,
        flag: &'static str,
        value_name: &'static str,
    ) -> Self {
        Self::new(group, help, flag, value_name, ValueKind::List)
    }

    /// Creates a setting that is on or off, and off by default.
    pub const fn switch(group: SettingGroup, help: &'static str, flag: &'static str) -> Self {
        Self::new(group, help, flag, "BOOL", ValueKind::Switch).or("false")
    }

    /// Creates a setting that takes a whole number from `min` to `max`.
    pub const fn number(
        group: SettingGroup,
        help: &'static str,
        flag: &'static str,
        value_name: &'static str,
        min: u64,
        max: u64,
    ) -> Self {
        Self::new(group, help, flag, value_name, ValueKind::Number(min, max))
    }

    /// Creates a setting that takes a duration.
    pub const fn time(group: SettingGroup, help: &'static str, flag: &'static str) -> Self {
        Self::new(group, help, flag, "TIME", ValueKind::Duration)
    }

    /// Creates a setting that takes an amount of bytes.
    pub const fn size(group: SettingGroup, help: &'static str, flag: &'static str) -> Self {
        Self::new(group, help, flag, "SIZE", ValueKind::Size)
    }

    /// Creates a setting that names a file or folder.
    pub const fn path(
        group: SettingGroup,
        help: &'static str,
        flag: &'static str,
        value_name: &'static str,
    ) -> Self {
        Self::new(group, help, flag, value_name, ValueKind::Path)
    }

    /// Creates a setting that takes one of these words.
    pub const fn choice(
        group: SettingGroup,
        help: &'static str,
        flag: &'static str,
        value_name: &'static str,
        words: &'static [&'static str],
    ) -> Self {
        Self::new(group, help, flag, value_name, ValueKind::Choice(words))
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

    /// Keeps runs from reading the file or folder. `what` describes its content, as in `the token`.
    #[must_use]
    pub const fn hidden_from_runs(mut self, what: &'static str) -> Self {
        self.in_runs = Some(RunAccess::None(what));
        self
    }

    /// Keeps runs from changing the file or folder. `what` describes its content, as in `the certificate`.
    #[must_use]
    pub const fn fixed_in_runs(mut self, what: &'static str) -> Self {
        self.in_runs = Some(RunAccess::Read(what));
        self
    }

    /// Leaves the access of runs to the file or folder to the administrator, as for the folders of `PATH`.
    #[must_use]
    pub const fn as_other_files_in_runs(mut self) -> Self {
        self.in_runs = Some(RunAccess::AsOthers);
        self
    }

    /// Keeps the server from starting without the file.
    #[must_use]
    pub const fn must_exist(mut self) -> Self {
        self.must_exist = true;
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

impl Compat {
    /// Word for the defaults of Atlantis.
    pub const ATLANTIS: &'static str = "atlantis";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_read_under_our_name_first() {
        let setting =
            Setting::text(SettingGroup::Web, "", "atlantis-url", "URL").also(&["public-url"]);
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
