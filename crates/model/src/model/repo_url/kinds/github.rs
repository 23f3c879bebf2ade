//! Addresses of GitHub: github.com, and the hosts of enterprises in its cloud.

use super::{AddressRules, PathShape, PublicHost};

pub(super) const ADDRESSES: AddressRules = AddressRules {
    hosts: &[PublicHost {
        name: "github.com",
        second_names: &["www.github.com", "ssh.github.com"],
        shape: Some(PathShape {
            segments: 2..=2,
            example: "https://github.com/owner/name",
        }),
    }],
    // GitHub Enterprise Cloud with data residency has a host for each enterprise.
    customer_hosts: Some(".ghe.com"),
    tokens: &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
    own_form: None,
};
