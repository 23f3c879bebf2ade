//! Addresses of Gitea and Forgejo (Codeberg).

use super::{AddressRules, PathShape, PublicHost};

pub(super) const ADDRESSES: AddressRules = AddressRules {
    hosts: &[
        PublicHost {
            name: "codeberg.org",
            second_names: &[],
            shape: Some(PathShape {
                segments: 2..=2,
                example: "https://codeberg.org/owner/name",
            }),
        },
        PublicHost {
            name: "gitea.com",
            second_names: &[],
            shape: Some(PathShape {
                segments: 2..=2,
                example: "https://gitea.com/owner/name",
            }),
        },
    ],
    customer_hosts: None,
    tokens: &[],
    own_form: None,
};
