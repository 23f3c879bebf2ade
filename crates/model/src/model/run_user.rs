//! The user of runs, if it differs from the user of the server.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// A user and its only group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunUser {
    /// Number of the user, neither root nor a number that the kernel reserves.
    pub uid: u32,
    /// Number of the group.
    pub gid: u32,
}

/// Error for a text that names no user for runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUser {
    /// The text is neither `UID` nor `UID:GID`.
    #[error("expected numbers, such as 4343 or 4343:4343")]
    Number(#[from] ParseIntError),
    /// The number is root, or one that the kernel reserves for no user.
    #[error("neither root (0) nor {} can be the user or group of runs", u32::MAX)]
    Reserved,
}

impl FromStr for RunUser {
    type Err = InvalidUser;

    /// Reads a user. Without a group, the group has the number of the user.
    fn from_str(text: &str) -> Result<Self, InvalidUser> {
        let (uid, gid) = text.split_once(':').unwrap_or((text, text));
        let (uid, gid) = (uid.parse()?, gid.parse()?);
        if [uid, gid].iter().any(|id| matches!(*id, 0 | u32::MAX)) {
            return Err(InvalidUser::Reserved);
        }
        Ok(Self { uid, gid })
    }
}

impl fmt::Display for RunUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_group_and_is_not_root() {
        let parsed = |text: &str| text.parse::<RunUser>().map(|user| user.to_string());
        for (text, expected) in [("4343", "4343:4343"), ("1:2", "1:2")] {
            assert_eq!(parsed(text).unwrap(), expected);
        }
        for text in ["0", "0:1", "1:0", "4294967295", "1:4294967295"] {
            assert_eq!(parsed(text), Err(InvalidUser::Reserved), "{text}");
        }
        for text in ["", "nobody", "1:", ":1", "-1", "1:2:3", "4294967296"] {
            assert!(
                matches!(parsed(text), Err(InvalidUser::Number(_))),
                "{text}"
            );
        }
    }
}
