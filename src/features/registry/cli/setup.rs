//! `lockkeeper registry setup`: the settings of clients.

use anyhow::Context as _;
use lockkeeper_registry::names::NameKind;
use lockkeeper_registry::signed_note::NoteVerifier;
use serde_json::json;
use url::Url;

use super::log_key;
use crate::kit::term::{DatabaseFlags, ExitResult, ExitStatus, OutputFormat, Terminal, Usage};

#[derive(clap::Args)]
pub(in crate::features::registry) struct SetupArgs {
    /// Public address of the server, as in `https://lockkeeper.example.com`
    #[arg(long, value_name = "URL")]
    url: Url,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    database: DatabaseFlags,
}

/// Values that the settings of clients need.
struct ClientSettings {
    /// Host of the server, with a port if it has one.
    host: String,
    /// Base of the addresses for the `go` command.
    proxy: String,
    /// Public key of the log.
    log: NoteVerifier,
    /// Beginnings of the paths of Go modules that are published here.
    go_prefixes: Vec<String>,
}

impl SetupArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let Some(host) = self.url.host_str().filter(|_| self.url.scheme() == "https") else {
            let problem =
                "--url: Terraform, OpenTofu and Go need an address that begins with https://";
            return Err(Usage::new(problem).into());
        };
        let host = match self.url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let store = self.database.open().await?;
        let namespaces = store.registry_namespaces().await;
        let namespaces = namespaces.context("the namespaces cannot be read")?;
        let go_prefixes = namespaces
            .iter()
            .filter(|namespace| namespace.prefix.kind() == NameKind::Go)
            .map(|namespace| namespace.prefix.as_str().to_owned());
        let base = self.url.as_str().trim_end_matches('/');
        let settings = ClientSettings {
            proxy: format!("{base}/registry/go"),
            log: log_key(&store).await?,
            go_prefixes: go_prefixes.collect(),
            host,
        };
        self.format
            .print(terminal, || settings.json(), || settings.text())?;
        Ok(ExitStatus::Success)
    }
}

impl ClientSettings {
    fn json(&self) -> serde_json::Value {
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

    fn text(&self) -> String {
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
