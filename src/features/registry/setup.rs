//! Settings of clients, as the command line and the API show them.

use lockkeeper_registry::names::{NameKind, NamePrefix};
use lockkeeper_registry::signed_note::NoteVerifier;
use serde_json::{Value, json};

/// Values that the settings of clients need.
pub(super) struct ClientSettings {
    /// Host of the server, with a port if it has one.
    host: String,
    /// Base of the addresses for the `go` command.
    proxy: String,
    /// Public key of the log.
    log: NoteVerifier,
    /// Beginnings of the paths of Go modules that are published here.
    go_prefixes: Vec<String>,
}

impl ClientSettings {
    /// Takes the host in the addresses of modules, and the address of the server.
    pub fn new<'a>(
        host: String,
        base: &str,
        log: NoteVerifier,
        namespaces: impl Iterator<Item = &'a NamePrefix>,
    ) -> Self {
        let go_prefixes = namespaces.filter(|prefix| prefix.kind() == NameKind::Go);
        Self {
            host,
            proxy: format!("{}/registry/go", base.trim_end_matches('/')),
            log,
            go_prefixes: go_prefixes
                .map(|prefix| prefix.as_str().to_owned())
                .collect(),
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "host": self.host,
            "token_variable": self.token_variable(),
            "goproxy": self.goproxy(),
            "gonosumdb": self.go_prefixes.join(","),
            "gosumdb": self.gosumdb(),
        })
    }

    /// Returns the variable from which Terraform and OpenTofu read a token. A host with a port has none.
    fn token_variable(&self) -> Option<String> {
        let name = self.host.replace('-', "__").replace('.', "_");
        (!name.contains(':')).then(|| format!("TF_TOKEN_{name}"))
    }

    fn goproxy(&self) -> String {
        format!("{},direct", self.proxy)
    }

    fn gosumdb(&self) -> String {
        format!("{} {}/sumdb/{}", self.log, self.proxy, self.log.name())
    }

    pub fn text(&self) -> String {
        let host = &self.host;
        let variable = match self.token_variable() {
            Some(variable) => format!("\n# or in a pipeline:\nexport {variable}=TOKEN\n"),
            None => String::new(),
        };
        let machine = host.split(':').next().unwrap_or(host);
        let prefixes = if self.go_prefixes.is_empty() {
            "example.com/net".to_owned()
        } else {
            self.go_prefixes.join(",")
        };
        format!(
            "# Modules have addresses such as {host}/acme/vpc/aws. TOKEN is the output of
#   lockkeeper registry tokens create --scope 'read:*'

# Terraform: ~/.terraformrc, OpenTofu: ~/.tofurc
credentials \"{host}\" {{
  token = \"TOKEN\"
}}
{variable}
# Go: ~/.netrc
machine {machine} login token password TOKEN

# Go: the modules of this registry come from here, and all others as before
go env -w GOPROXY='{goproxy}'
go env -w GONOSUMDB='{prefixes}'

# Go: where all modules come from this registry, its log verifies them
go env -u GONOSUMDB
go env -w GOPROXY='{proxy}'
go env -w GOSUMDB='{gosumdb}'",
            goproxy = self.goproxy(),
            proxy = self.proxy,
            gosumdb = self.gosumdb(),
        )
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use lockkeeper_registry::signed_note::NoteSigner;

    use super::*;

    fn settings(host: &str, go_prefixes: &[&str]) -> ClientSettings {
        let signer = NoteSigner::from_seed("mods.example.com", &[19; 32]).unwrap();
        ClientSettings {
            host: host.to_owned(),
            proxy: format!("https://{host}/registry/go"),
            log: signer.verifier().clone(),
            go_prefixes: go_prefixes.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn settings_are_lines_to_copy() {
        let text = settings(
            "lock-keeper.example.com",
            &["example.com/net", "example.org"],
        )
        .text();
        assert_snapshot!(text, @r#"
        # Modules have addresses such as lock-keeper.example.com/acme/vpc/aws. TOKEN is the output of
        #   lockkeeper registry tokens create --scope 'read:*'

        # Terraform: ~/.terraformrc, OpenTofu: ~/.tofurc
        credentials "lock-keeper.example.com" {
          token = "TOKEN"
        }

        # or in a pipeline:
        export TF_TOKEN_lock__keeper_example_com=TOKEN

        # Go: ~/.netrc
        machine lock-keeper.example.com login token password TOKEN

        # Go: the modules of this registry come from here, and all others as before
        go env -w GOPROXY='https://lock-keeper.example.com/registry/go,direct'
        go env -w GONOSUMDB='example.com/net,example.org'

        # Go: where all modules come from this registry, its log verifies them
        go env -u GONOSUMDB
        go env -w GOPROXY='https://lock-keeper.example.com/registry/go'
        go env -w GOSUMDB='mods.example.com+a66209ca+AWbNYIuSi4jlDg7+qjP68cQ87+BylLC4fp/gq6ajz3Yz https://lock-keeper.example.com/registry/go/sumdb/mods.example.com'
        "#);
        let text = settings("lockkeeper.example.com:8443", &[]).text();
        assert!(!text.contains("TF_TOKEN"), "{text}");
        assert!(
            text.contains("machine lockkeeper.example.com login"),
            "{text}"
        );
    }
}
