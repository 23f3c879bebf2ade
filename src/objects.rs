//! Object stores of cloud providers, by their addresses.
//!
//! Runs get variables such as `AWS_ACCESS_KEY_ID`, because providers of Terraform need them. A run that could write into a
//! store of the server could remove or change what the server has there. So the credentials of a store are in variables
//! of the server, `LOCKKEEPER_STORE_AWS_ACCESS_KEY_ID` and the like, which no run gets and which the server removes from
//! its environment. Without credentials of its own, the store takes what the machine gives to every program, such as
//! its role, and refuses a secret in a usual variable.
//!
//! The server sends requests to the address of the store only, and follows no redirect. Of what a store says about a
//! refusal, only the code is kept: the rest can repeat the request, with its secrets.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::TryStreamExt as _;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use reqwest::{StatusCode, redirect};

use crate::config::server::{ObjectStoreKind, ObjectStoreUrl};
use crate::config::variables::STORE_VARIABLES;

/// Longest time for a request, which sends or gets at most a few MiB.
const REQUEST_TIME: Duration = Duration::from_mins(1);
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Number of times that a failed request is repeated, and the time after which it is not.
const RETRIES: usize = 3;
const RETRY_TIME: Duration = Duration::from_secs(10);

/// Number of bytes of a refusal in which its code is looked for.
const MAX_REFUSAL: usize = 64 * 1024;

/// Maximum length of the reason of a failure in characters.
const MAX_REASON: usize = 300;

/// Settings with secrets, as object stores know them. Runs get all of the usual variables of these names.
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

/// Further settings that say who the server is, without a secret in them.
const IDENTITIES: [&str; 11] = [
    "aws_container_credentials_full_uri",
    "aws_container_credentials_relative_uri",
    "aws_skip_signature",
    "aws_web_identity_token_file",
    "azure_federated_token_file",
    "azure_msi_resource_id",
    "azure_skip_signature",
    "google_application_credentials",
    "google_service_account",
    "google_service_account_path",
    "google_skip_signature",
];

/// Usual settings that a store with its own credentials takes as well.
const REGIONS: [&str; 2] = ["aws_default_region", "aws_region"];

/// Settings with which a store would start a program.
const PROGRAMS: [&str; 2] = ["azure_credential_type", "azure_use_azure_cli"];

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
    #[error(
        "the variable {0} names no setting of this kind of object store. Correct its name, or remove it"
    )]
    UnknownVariable(String),
    /// An address has a user name or a password, which would be shown.
    #[error(
        "the address in the variable {0} has credentials. Put them into variables of their own (docs/registry.md)"
    )]
    SecretInAddress(String),
    /// The variables do not fit together, or one has an invalid value.
    #[error("the settings of the object store `{0}` cannot be used")]
    Settings(String, #[source] Box<object_store::Error>),
}

/// A place in an object store. Clones share the connections.
#[derive(Clone)]
pub struct RemoteObjects {
    url: ObjectStoreUrl,
    store: Arc<dyn ObjectStore>,
    /// Sentences for a failure, if no variable says who the server is.
    advice: Option<String>,
}

impl RemoteObjects {
    /// Prepares requests to a place. `variables` are those of the server. Sends nothing yet.
    pub fn open(
        url: &ObjectStoreUrl,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, ObjectsError> {
        let given = settings_of(url.kind, variables)?;
        let advice = (!given.iter().any(StoreVariable::is_identity))
            .then(|| advice_without_credentials(url.kind, &given));
        let bucket = url.bucket.as_str();
        let opened = match url.kind {
            ObjectStoreKind::S3 => {
                let builder = AmazonS3Builder::new()
                    .with_http_connector(Connector(url.kind))
                    .with_retry(retries())
                    .with_conditional_put(S3ConditionalPut::ETagMatch);
                let builder = configured(builder, given, AmazonS3Builder::with_config)?;
                // One object is removed at a time, and not every store knows the request for many.
                let builder = builder
                    .with_bucket_name(bucket)
                    .with_disable_bulk_delete(true);
                builder.build().map(shared)
            }
            ObjectStoreKind::Google => {
                let builder = GoogleCloudStorageBuilder::new()
                    .with_http_connector(Connector(url.kind))
                    .with_retry(retries());
                let builder = configured(builder, given, GoogleCloudStorageBuilder::with_config)?;
                builder.with_bucket_name(bucket).build().map(shared)
            }
            ObjectStoreKind::Azure => {
                let builder = MicrosoftAzureBuilder::new()
                    .with_http_connector(Connector(url.kind))
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
            advice,
        })
    }

    /// Returns sentences for people whose store fails, if the server has no credentials for it: which ones it tried, and
    /// where its own belong.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
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

/// Makes the clients of stores of a kind.
#[derive(Debug)]
struct Connector(ObjectStoreKind);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        let allow_http = allow_http.map(|value| value.to_ascii_lowercase());
        let allow_http = matches!(
            allow_http.as_deref(),
            Some("1" | "true" | "on" | "yes" | "y")
        );
        let client = reqwest::Client::builder()
            .http1_only()
            // A redirect would take secrets to another server, or requests to one that only this machine reaches.
            .redirect(redirect::Policy::none())
            .https_only(!allow_http)
            .connect_timeout(CONNECT_TIME)
            .timeout(REQUEST_TIME)
            // The size of an object is that of the answer.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .user_agent(concat!("lockkeeper/", env!("CARGO_PKG_VERSION")))
            .build();
        let client = client.map_err(|error| object_store::Error::Generic {
            store: "HTTP",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(StoreClient {
            client,
            refused_http: (!allow_http).then_some(UnencryptedEndpoint(self.0)),
        }))
    }
}

/// The endpoint of a store begins with `http://`, and no variable allows requests without encryption.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "the endpoint of the store begins with http://. Set {STORE_VARIABLES}{usual}ALLOW_HTTP=true to allow requests without \
     encryption (docs/registry.md)",
    usual = .0.variables()
)]
struct UnencryptedEndpoint(ObjectStoreKind);

#[derive(Debug)]
struct StoreClient {
    client: reqwest::Client,
    /// Failure of requests without encryption. `None`: they are allowed.
    refused_http: Option<UnencryptedEndpoint>,
}

#[async_trait]
impl HttpService for StoreClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // The client would refuse it as well, without the way out.
        if let Some(refused) = self.refused_http
            && request.uri().scheme_str() == Some("http")
        {
            return Err(HttpError::new(HttpErrorKind::Unknown, refused));
        }
        let (parts, body) = self.client.call(request).await?.into_parts();
        let status = parts.status;
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(HttpResponse::from_parts(parts, body));
        }
        let code = code_of(body).await;
        let is_for_library = (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED)
            || matches!(
                status,
                StatusCode::UNAUTHORIZED
                    | StatusCode::FORBIDDEN
                    | StatusCode::NOT_FOUND
                    | StatusCode::REQUEST_TIMEOUT
                    | StatusCode::CONFLICT
                    | StatusCode::PRECONDITION_FAILED
                    | StatusCode::TOO_MANY_REQUESTS
            );
        if is_for_library {
            return Ok(HttpResponse::from_parts(parts, code.into()));
        }
        let refusal = StoreRefusal { status, code };
        Err(HttpError::new(HttpErrorKind::Unknown, refusal))
    }
}

/// Answer of a store that is final, although the library has no error of its own for it.
#[derive(Debug, thiserror::Error)]
#[error("it answers with status {status} {code}")]
pub struct StoreRefusal {
    /// Status of the answer, such as 400, 416, 501 or one of a redirect.
    pub status: StatusCode,
    code: String,
}

impl StoreRefusal {
    /// Returns the refusal behind an error.
    pub fn of(error: &object_store::Error) -> Option<&Self> {
        causes(error).find_map(|cause| cause.downcast_ref())
    }
}

/// Returns the reason of an error in a few words. It names no address, and repeats nothing of the request.
pub fn describe_failure(error: &object_store::Error) -> String {
    let last = causes(error).last().map(ToString::to_string);
    let text = last.unwrap_or_default();
    // A document of the store.
    let text = text.split('<').next().unwrap_or_default().trim_end();
    let text = text.chars().filter(|c| !c.is_control());
    text.take(MAX_REASON).collect()
}

/// Returns an error and its causes.
fn causes(error: &object_store::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let first: &(dyn Error + 'static) = error;
    std::iter::successors(Some(first), |&error| error.source())
}

/// Reads the code of a refusal, such as `AccessDenied`. Empty: it has none.
async fn code_of(body: HttpResponseBody) -> String {
    let mut pieces = body.bytes_stream();
    let mut text = Vec::new();
    while text.len() < MAX_REFUSAL
        && let Ok(Some(piece)) = pieces.try_next().await
    {
        text.extend_from_slice(&piece);
    }
    let text = String::from_utf8_lossy(&text);
    let code = text.split_once("<Code>");
    let code = code.and_then(|(_, rest)| rest.split_once("</Code>"));
    let is_code = |code: &&str| code.len() <= 64 && code.bytes().all(|c| c.is_ascii_alphanumeric());
    let code = code.map(|(code, _)| code).filter(is_code);
    code.unwrap_or_default().to_owned()
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

impl StoreVariable {
    fn is_secret(&self) -> bool {
        SECRETS.contains(&self.setting.as_str())
    }

    /// Returns true for a setting that says who the server is.
    fn is_identity(&self) -> bool {
        self.is_secret() || IDENTITIES.contains(&self.setting.as_str())
    }

    fn is_address(&self) -> bool {
        self.setting.contains("endpoint") || self.setting.contains("_url")
    }

    /// Returns true for a setting of connections that the server does not have.
    fn is_of_client(&self) -> bool {
        let name = self.setting.split_once('_').map(|(_, name)| name);
        let key = name.and_then(|name| name.parse::<ClientConfigKey>().ok());
        key.is_some_and(|key| key != ClientConfigKey::AllowHttp)
    }
}

/// Returns the settings of a store: the usual ones, and then those that are only for stores of the server.
fn settings_of(
    kind: ObjectStoreKind,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<StoreVariable>, ObjectsError> {
    let usual = kind.variables();
    let (mut shared, mut own) = (Vec::new(), Vec::new());
    for (name, value) in variables.iter().filter(|(_, value)| !value.is_empty()) {
        let of_store = name.strip_prefix(STORE_VARIABLES);
        let setting = of_store.unwrap_or(name);
        let is_own = of_store.is_some();
        if !setting.starts_with(usual) {
            if is_own {
                return Err(ObjectsError::UnknownVariable(name.clone()));
            }
            continue;
        }
        let variable = StoreVariable {
            name: name.clone(),
            setting: setting.to_ascii_lowercase(),
            value: value.clone(),
            is_own,
        };
        if is_own {
            own.push(variable);
        } else {
            shared.push(variable);
        }
    }
    if own.iter().any(StoreVariable::is_identity) {
        shared.retain(|given| REGIONS.contains(&given.setting.as_str()));
    } else if let Some(secret) = shared.iter().find(|given| given.is_secret()) {
        return Err(ObjectsError::SharedSecret(secret.name.clone()));
    }
    if own.iter().any(StoreVariable::is_address) {
        shared.retain(|given| !given.is_address());
    }
    shared.append(&mut own);
    let with_secret = shared
        .iter()
        .find(|given| given.is_address() && given.value.contains('@'));
    match with_secret {
        Some(given) => Err(ObjectsError::SecretInAddress(given.name.clone())),
        None => Ok(shared),
    }
}

/// Names what a store without credentials of the server uses, and the variables of the server that are missing.
fn advice_without_credentials(kind: ObjectStoreKind, given: &[StoreVariable]) -> String {
    let (tried, mut missing) = match kind {
        ObjectStoreKind::S3 => (
            "the role of this machine",
            vec!["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
        ),
        ObjectStoreKind::Google => (
            "the default credentials of this machine",
            vec!["GOOGLE_SERVICE_ACCOUNT_KEY"],
        ),
        ObjectStoreKind::Azure => (
            "the managed identity of this machine",
            vec!["AZURE_STORAGE_ACCOUNT_KEY"],
        ),
    };
    let mut settings = given.iter().map(|given| given.setting.as_str());
    if kind == ObjectStoreKind::S3 && !settings.any(|setting| REGIONS.contains(&setting)) {
        missing.push("AWS_REGION");
    }
    let missing = missing
        .iter()
        .map(|name| format!("{STORE_VARIABLES}{name}"));
    let missing: Vec<String> = missing.collect();
    format!(
        "No variable has credentials for this store, so {tried} was tried. If there is none, set {} (docs/registry.md)",
        missing.join(", ")
    )
}

/// Hands settings to the builder of a store. Unknown ones are left out, unless they are only for stores of the server.
fn configured<B, K: FromStr>(
    builder: B,
    given: Vec<StoreVariable>,
    set: impl Fn(B, K, String) -> B,
) -> Result<B, ObjectsError> {
    let mut builder = builder;
    for variable in given {
        let is_refused = variable.is_of_client() || PROGRAMS.contains(&variable.setting.as_str());
        match variable.setting.parse::<K>() {
            Ok(key) if !is_refused => builder = set(builder, key, variable.value),
            Ok(_) | Err(_) if variable.is_own => {
                return Err(ObjectsError::UnknownVariable(variable.name));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(builder)
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt as _;

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
        // A region is no identity, and takes none away.
        let region = [shared[0], shared[1], ("LOCKKEEPER_STORE_AWS_REGION", "x")];
        assert!(opened("s3://packages", &region).is_err());
        let settings = |given: &[(&str, &str)]| {
            let settings = settings_of(ObjectStoreKind::S3, &variables(given)).unwrap();
            let settings = settings.into_iter();
            let settings = settings.map(|given| format!("{}={}", given.setting, given.value));
            settings.collect::<Vec<_>>()
        };
        let role = [("AWS_REGION", "eu-west-1"), ("AWS_ROLE_ARN", "role-of-all")];
        assert!(opened("s3://packages", &role).is_ok());
        let region = ("LOCKKEEPER_STORE_AWS_REGION", "eu-west-2");
        assert_eq!(
            settings(&[role[0], role[1], region]),
            [
                "aws_region=eu-west-1",
                "aws_role_arn=role-of-all",
                "aws_region=eu-west-2"
            ]
        );
        let own = ("LOCKKEEPER_STORE_AWS_WEB_IDENTITY_TOKEN_FILE", "token");
        assert_eq!(
            settings(&[shared[0], shared[1], role[0], role[1], own]),
            ["aws_region=eu-west-1", "aws_web_identity_token_file=token"]
        );
    }

    #[test]
    fn missing_credentials_are_named() {
        let advice = |url: &str, given: &[(&str, &str)]| {
            let objects = RemoteObjects::open(&url.parse().unwrap(), &variables(given)).unwrap();
            objects.advice().map(str::to_owned)
        };
        let account = ("LOCKKEEPER_STORE_AZURE_STORAGE_ACCOUNT_NAME", "mods");
        let key = ("LOCKKEEPER_STORE_AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0");
        let role = [("AWS_REGION", "eu-west-1"), ("AWS_ROLE_ARN", "role")];
        let token = ("AWS_WEB_IDENTITY_TOKEN_FILE", "token");
        let set = |names: &[&str]| {
            let names = names.iter();
            let names = names.map(|name| format!("{STORE_VARIABLES}{name}"));
            Some(format!("set {} (", names.collect::<Vec<_>>().join(", ")))
        };
        let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"];
        for (url, given, missing) in [
            ("s3://packages", vec![], set(&keys)),
            ("s3://packages", role.to_vec(), set(&keys[..2])),
            ("s3://packages", vec![role[0], role[1], token], None),
            (
                "az://packages",
                vec![account],
                set(&["AZURE_STORAGE_ACCOUNT_KEY"]),
            ),
            ("az://packages", vec![account, key], None),
        ] {
            let advice = advice(url, &given);
            assert_eq!(advice.is_some(), missing.is_some(), "{advice:?}");
            let (advice, missing) = (advice.unwrap_or_default(), missing.unwrap_or_default());
            assert!(advice.contains(&missing), "{advice}");
        }
    }

    #[tokio::test]
    async fn a_store_without_encryption_is_refused_with_the_variable_that_allows_it() {
        let s3 = [
            ("LOCKKEEPER_STORE_AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
            ("LOCKKEEPER_STORE_AWS_ACCESS_KEY_ID", "id"),
            ("LOCKKEEPER_STORE_AWS_SECRET_ACCESS_KEY", "secret-of-store"),
            ("LOCKKEEPER_STORE_AWS_REGION", "eu-west-1"),
        ];
        let azure = [
            ("LOCKKEEPER_STORE_AZURE_ENDPOINT", "http://127.0.0.1:9/mods"),
            ("LOCKKEEPER_STORE_AZURE_STORAGE_ACCOUNT_NAME", "mods"),
            ("LOCKKEEPER_STORE_AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0"),
        ];
        for (url, given, name) in [
            (
                "s3://packages",
                &s3[..],
                "LOCKKEEPER_STORE_AWS_ALLOW_HTTP=true",
            ),
            (
                "az://packages",
                &azure[..],
                "LOCKKEEPER_STORE_AZURE_ALLOW_HTTP=true",
            ),
        ] {
            let objects = RemoteObjects::open(&url.parse().unwrap(), &variables(given)).unwrap();
            let refused = objects.store().head(&Path::from("x")).await.unwrap_err();
            assert_eq!(
                describe_failure(&refused),
                format!(
                    "the endpoint of the store begins with http://. Set {name} to allow requests without encryption \
                     (docs/registry.md)"
                )
            );
        }
    }

    #[test]
    fn an_address_with_a_password_is_refused() {
        let address = "https://id:secret-of-store@s3.example.com";
        for name in ["AWS_ENDPOINT_URL", "LOCKKEEPER_STORE_AWS_ENDPOINT_URL"] {
            let error = opened("s3://packages", &[(name, address)]).unwrap_err();
            assert!(error.contains(name), "{error}");
            assert!(!error.contains("secret-of-store"), "{error}");
        }
    }

    #[test]
    fn a_variable_that_would_change_nothing_is_named() {
        for (url, name) in [
            ("s3://packages", "LOCKKEEPER_STORE_AWS_ACCES_KEY"),
            ("s3://packages", "LOCKKEEPER_STORE_S3_ACCESS_KEY_ID"),
            ("s3://packages", "LOCKKEEPER_STORE_AWS_TIMEOUT"),
            ("az://packages", "LOCKKEEPER_STORE_AWS_ACCESS_KEY_ID"),
            ("az://packages", "LOCKKEEPER_STORE_AZURE_USE_AZURE_CLI"),
        ] {
            let error = opened(url, &[(name, "secret-of-store")]).unwrap_err();
            assert!(error.contains(name), "{error}");
            assert!(!error.contains("secret-of-store"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_refusal_tells_its_code_and_repeats_nothing() {
        let body = "<Error><Code>SignatureDoesNotMatch</Code><Token>secret</Token></Error>";
        assert_eq!(
            code_of(body.to_owned().into()).await,
            "SignatureDoesNotMatch"
        );
        for other in ["", "<Code>a b</Code>", "{\"error\": \"secret\"}"] {
            assert_eq!(code_of(other.to_owned().into()).await, "", "{other}");
        }
        let refused = object_store::Error::Generic {
            store: "S3",
            source: Box::new(HttpError::new(
                HttpErrorKind::Unknown,
                StoreRefusal {
                    status: StatusCode::FOUND,
                    code: String::new(),
                },
            )),
        };
        let status = StoreRefusal::of(&refused).map(|refusal| refusal.status);
        assert_eq!(status, Some(StatusCode::FOUND));
        assert_eq!(
            describe_failure(&refused).trim(),
            "it answers with status 302 Found"
        );
        let long = object_store::Error::Generic {
            store: "S3",
            source: format!("{}<Token>secret", "long ".repeat(100)).into(),
        };
        let shown = describe_failure(&long);
        assert!(shown.starts_with("long ") && shown.len() == 300, "{shown}");
        assert!(!shown.contains("secret"), "{shown}");
    }
}
