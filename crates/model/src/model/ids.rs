//! Identifiers. Each kind is a type, so that one cannot be passed for another.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use super::text::text_type;
use crate::ids::Ids;

macro_rules! id_type {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// Returns the next identifier.
            pub fn next(ids: &dyn Ids) -> Self {
                Self(ids.next())
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::try_parse(text).map(Self)
            }
        }

        text_type!($name);
    };
}

id_type!(
    /// One webhook request, stored in the `deliveries` table (not the forge's own identifier of it).
    DeliveryId
);
id_type!(
    /// One command requested on a pull.
    CommandId
);
id_type!(
    /// One command on one project. Also names the page with its output: `/jobs/{id}`.
    RunId
);
id_type!(
    /// One row of the queue.
    JobId
);
id_type!(
    /// One lock, from the moment when it is taken until its release.
    LockId
);
id_type!(
    /// One apply lock, from its start until its end.
    ApplyLockId
);
id_type!(
    /// One plan record of a project.
    PlanId
);
id_type!(
    /// One owner: a team or tenant of the server.
    OwnerId
);
id_type!(
    /// One claim on a repository, until nothing refers to it any more.
    ClaimId
);
id_type!(
    /// One registered project, also called application.
    ApplicationId
);
id_type!(
    /// One credential of a repository.
    CredentialId
);
