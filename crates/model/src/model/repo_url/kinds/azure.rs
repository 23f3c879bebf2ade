//! Addresses of Azure DevOps, which have one form per protocol, and older forms with the organisation as a host.

use super::{AddressRules, OwnForm, PublicHost};
use crate::model::repo_url::fault::RepoUrlFault;
use crate::model::repo_url::forges::{RepoLocation, folded, strip_git};
use crate::model::repo_url::spelling::{AddressParts, AddressProtocol, check_segment};

const HOST: &str = "dev.azure.com";
const SHAPE: &str = "https://dev.azure.com/organisation/project/_git/name";

pub(super) const ADDRESSES: AddressRules = AddressRules {
    hosts: &[PublicHost {
        name: HOST,
        second_names: &[],
        shape: None,
    }],
    customer_hosts: None,
    tokens: &[],
    own_form: Some(OwnForm {
        host: HOST,
        locate,
        path_of: |owner, name| format!("{owner}/_git/{name}"),
        name_of: |path| path.replacen("/_git/", "/", 1),
    }),
};

fn locate(spelling: &AddressParts) -> Result<Option<RepoLocation>, RepoUrlFault> {
    if spelling.way == AddressProtocol::Web && spelling.port.is_some() {
        return Ok(None);
    }
    let mut parts = folded(&spelling.segments)?;
    let organisation = spelling
        .host
        .strip_suffix(".visualstudio.com")
        .filter(|name| *name != "vs-ssh");
    match (spelling.host.as_str(), organisation) {
        (HOST | "ssh.dev.azure.com" | "vs-ssh.visualstudio.com", _) => {}
        (_, Some(organisation)) if !organisation.contains('.') => {
            check_segment(organisation)?;
            parts.insert(0, organisation.to_owned());
        }
        _ => return Ok(None),
    }
    strip_git(&mut parts)?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (organisation, project, name) = match parts[..] {
        ["v3", organisation, project, name] if spelling.way == AddressProtocol::Shell => {
            (organisation, project, name)
        }
        [organisation, project, "_git" | "_ssh", name]
        | [
            organisation,
            "defaultcollection",
            project,
            "_git" | "_ssh",
            name,
        ] => (organisation, project, name),
        [organisation, "_git" | "_ssh", name] => (organisation, name, name),
        _ => return Err(RepoUrlFault::Shape(SHAPE)),
    };
    let segments = [organisation, project, "_git", name]
        .map(str::to_owned)
        .to_vec();
    Ok(Some(RepoLocation {
        host: HOST.to_owned(),
        segments,
    }))
}
