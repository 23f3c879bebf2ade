//! Addresses of Bitbucket Cloud.

use super::{AddressRules, PathShape, PublicHost};

pub(super) const ADDRESSES: AddressRules = AddressRules {
    hosts: &[PublicHost {
        name: "bitbucket.org",
        second_names: &["www.bitbucket.org", "altssh.bitbucket.org"],
        shape: Some(PathShape {
            segments: 2..=2,
            example: "https://bitbucket.org/workspace/name",
        }),
    }],
    customer_hosts: None,
    tokens: &["atatt", "atctt", "atbb", "atoat"],
    own_form: None,
};
