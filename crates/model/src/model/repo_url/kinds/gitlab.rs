//! Addresses of GitLab, where groups can be nested.

use super::{AddressRules, PathShape, PublicHost};

pub(super) const ADDRESSES: AddressRules = AddressRules {
    hosts: &[PublicHost {
        name: "gitlab.com",
        second_names: &["www.gitlab.com", "altssh.gitlab.com"],
        shape: Some(PathShape {
            segments: 2..=usize::MAX,
            example: "https://gitlab.com/group/name",
        }),
    }],
    customer_hosts: None,
    tokens: &[
        "glpat-", "gloas-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-",
    ],
    own_form: None,
};
