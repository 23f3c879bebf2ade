//! Object stores of cloud providers, by their addresses.
//!
//! Runs get variables such as `AWS_ACCESS_KEY_ID`, because providers of Terraform need them. A run that could write into a
//! store of the server could remove or change what the server has there. So the credentials of a store are in variables
//! of the server, `LOCKKEEPER_STORE_AWS_ACCESS_KEY_ID` and the like, which no run gets and which the server removes from
//! its environment. Without any of them, the store takes what the machine gives to every program, such as its role, and
//! refuses a secret in a usual variable.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use crate::config::server::{ObjectStoreKind, ObjectStoreUrl};
use crate::config::variables::STORE_VARIABLES;

/// Longest time for a request, which sends or gets at most a few MiB.
const REQUEST_TIME: Duration = Duration::from_mins(1);
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Number of times that a failed request is repeated, and the time after which it is not.
const RETRIES: usize = 3;
const RETRY_TIME: Duration = Duration::from_secs(10);

/// Variables with secrets, as object stores know them. Runs get all of them.
const SECRETS: [&str; 17] = [
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "aws_token",
    "aws_sse_customer_key_base64",
    "google_service_account_key",
    "google_bearer_token",
    "azure_storage_account_key",
    "azure_storage_access_key",
    "azure_storage_master_key",
    "azure_storage_client_secret",
    "azure_client_secret",
    "azure_storage_sas_key",
    "azure_storage_sas_token",
    "azure_storage_token",
    "azure_fabric_session_token",
    "azure_storage_encryption_key",
];

/// Reason why an object store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// A variable that runs get has a secret.
    #[error(
        "runs get the variable {0}, so the object store does not use it. Put its credentials into {STORE_VARIABLES}{0} \
         and the like (docs/registry.md), or remove {0} if the machine has a role for the store"
    )]
    SharedSecret(String),
    /// No object store has a setting of this name.
    #[error("the variable {0} names no setting of an object store. Correct its name, or remove it")]
    UnknownVariable(String),
    /// The variables do not fit together, or one has an invalid value.
    #[error("the settings of the object store `{0}` cannot be used")]
    Settings(String, #[source] Box<object_store::Error>),
}

/// A place in an object store. Clones share the connections.
#[derive(Clone)]
pub struct RemoteObjects {
    url: ObjectStoreUrl,
    store: Arc<dyn ObjectStore>,
}

impl RemoteObjects {
    /// Prepares requests to a place. `variables` are those of the server. Sends nothing yet.
    pub fn open(
        url: &ObjectStoreUrl,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, ObjectsError> {
        let given = settings_of(url.kind, variables)?;
        let bucket = url.bucket.as_str();
        let opened = match url.kind {
            ObjectStoreKind::S3 => {
                let builder = AmazonS3Builder::new()
                    .with_client_options(client_options())
                    .with_retry(retries());
                let builder = configured(builder, given, AmazonS3Builder::with_config)?;
                // One object is removed at a time, and not every store knows the request for many.
                let builder = builder
                    .with_bucket_name(bucket)
                    .with_disable_bulk_delete(true)
                    .with_conditional_put(S3ConditionalPut::ETagMatch);
                builder.build().map(shared)
            }
            ObjectStoreKind::Google => {
                let builder = GoogleCloudStorageBuilder::new()
                    .with_client_options(client_options())
                    .with_retry(retries());
                let builder = configured(builder, given, GoogleCloudStorageBuilder::with_config)?;
                builder.with_bucket_name(bucket).build().map(shared)
            }
            ObjectStoreKind::Azure => {
                let builder = MicrosoftAzureBuilder::new()
                    .with_client_options(client_options())
                    .with_retry(retries());
                let builder = configured(builder, given, MicrosoftAzureBuilder::with_config)?;
                builder.with_container_name(bucket).build().map(shared)
            }
        };
        let store =
            opened.map_err(|error| ObjectsError::Settings(url.to_string(), Box::new(error)))?;
        let store = PrefixStore::new(store, Path::from(url.prefix.as_str()));
        Ok(Self {
            url: url.clone(),
            store: Arc::new(store),
        })
    }

    /// Returns the store. Its keys begin at the place.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }
}

impl fmt::Display for RemoteObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl fmt::Debug for RemoteObjects {
    /// Shows the address only. Clients have credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteObjects({})", self.url)
    }
}

fn shared(store: impl ObjectStore) -> Arc<dyn ObjectStore> {
    Arc::new(store)
}

fn client_options() -> ClientOptions {
    ClientOptions::new()
        .with_timeout(REQUEST_TIME)
        .with_connect_timeout(CONNECT_TIME)
}

fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            max_backoff: Duration::from_secs(2),
            ..BackoffConfig::default()
        },
        max_retries: RETRIES,
        retry_timeout: RETRY_TIME,
    }
}

/// A setting of an object store from a variable.
struct StoreVariable {
    /// Name of the variable of the server.
    name: String,
    /// Name of the setting, such as `aws_region`.
    setting: String,
    value: String,
    /// True if the variable is only for stores of the server.
    is_own: bool,
}

/// Returns the settings of a store: those for stores of the server only, or else the usual ones without secrets.
fn settings_of(
    kind: ObjectStoreKind,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<StoreVariable>, ObjectsError> {
    let usual = kind.variables();
    let beginning_with = |start: &str, is_own: bool| -> Vec<StoreVariable> {
        let given = variables.iter().filter_map(|(name, value)| {
            let rest = name.strip_prefix(start)?.strip_prefix(usual)?;
            Some(StoreVariable {
                name: name.clone(),
                setting: format!("{usual}{rest}").to_ascii_lowercase(),
                value: value.clone(),
                is_own,
            })
        });
        given.filter(|given| !given.value.is_empty()).collect()
    };
    let own = beginning_with(STORE_VARIABLES, true);
    if !own.is_empty() {
        return Ok(own);
    }
    let shared = beginning_with("", false);
    let secret = shared
        .iter()
        .find(|given| SECRETS.contains(&given.setting.as_str()));
    match secret {
        Some(secret) => Err(ObjectsError::SharedSecret(secret.name.clone())),
        None => Ok(shared),
    }
}

/// Hands settings to the builder of a store. Unknown ones are left out, unless they are only for stores of the server.
fn configured<B, K: FromStr>(
    builder: B,
    given: Vec<StoreVariable>,
    set: impl Fn(B, K, String) -> B,
) -> Result<B, ObjectsError> {
    let mut builder = builder;
    for variable in given {
        match variable.setting.parse::<K>() {
            Ok(key) => builder = set(builder, key, variable.value),
            Err(_) if variable.is_own => {
                return Err(ObjectsError::UnknownVariable(variable.name));
            }
            Err(_) => {}
        }
    }
    Ok(builder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::server::{PassEnvironment, RunStage};

    fn variables(given: &[(&str, &str)]) -> BTreeMap<String, String> {
        let given = given.iter();
        given
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn opened(url: &str, given: &[(&str, &str)]) -> Result<String, String> {
        let opened = RemoteObjects::open(&url.parse().unwrap(), &variables(given));
        opened
            .map(|objects| format!("{objects:?}"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn credentials_come_from_variables_that_no_run_gets() {
        let runs = PassEnvironment::new(vec!["*".to_owned()]);
        for (url, given) in [
            (
                "s3://packages/mods",
                &[
                    ("LOCKKEEPER_STORE_AWS_ACCESS_KEY_ID", "id"),
                    ("LOCKKEEPER_STORE_AWS_SECRET_ACCESS_KEY", "secret-of-store"),
                    ("LOCKKEEPER_STORE_AWS_REGION", "eu-west-1"),
                ][..],
            ),
            (
                "az://packages",
                &[
                    ("LOCKKEEPER_STORE_AZURE_STORAGE_ACCOUNT_NAME", "mods"),
                    ("LOCKKEEPER_STORE_AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0"),
                ][..],
            ),
            (
                "gs://packages",
                &[("LOCKKEEPER_STORE_GOOGLE_SKIP_SIGNATURE", "true")][..],
            ),
        ] {
            assert_eq!(opened(url, given), Ok(format!("RemoteObjects({url})")));
            for (name, _) in given {
                for stage in [RunStage::Plan, RunStage::Apply] {
                    assert!(!runs.passes(name, stage), "{name}");
                }
            }
        }
    }

    #[test]
    fn a_secret_that_runs_get_is_refused_unless_the_store_has_its_own() {
        let shared = [
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret-of-runs"),
        ];
        let error = opened("s3://packages", &shared).unwrap_err();
        assert!(
            error.contains("LOCKKEEPER_STORE_AWS_ACCESS_KEY_ID"),
            "{error}"
        );
        assert!(!error.contains("secret-of-runs"), "{error}");
        let own = [shared[0], shared[1], ("LOCKKEEPER_STORE_AWS_REGION", "x")];
        assert!(opened("s3://packages", &own).is_ok());
        let role = [("AWS_REGION", "eu-west-1"), ("AWS_PROFILE", "dev")];
        assert!(opened("s3://packages", &role).is_ok());
        let usual = settings_of(ObjectStoreKind::S3, &variables(&role)).unwrap();
        let usual: Vec<&str> = usual.iter().map(|given| given.setting.as_str()).collect();
        assert_eq!(usual, ["aws_profile", "aws_region"]);
    }

    #[test]
    fn a_misspelt_variable_of_the_store_is_named() {
        let given = [("LOCKKEEPER_STORE_AWS_ACCES_KEY", "secret-of-store")];
        let error = opened("s3://packages", &given).unwrap_err();
        assert!(error.contains("LOCKKEEPER_STORE_AWS_ACCES_KEY"), "{error}");
        assert!(!error.contains("secret-of-store"), "{error}");
    }
}
