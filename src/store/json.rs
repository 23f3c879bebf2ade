//! Stores a value as JSON text, the same in both databases.

use serde::{Serialize, de::DeserializeOwned};

/// A value in a column of JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonText<T>(pub T);

impl<DB: sqlx::Database, T> sqlx::Type<DB> for JsonText<T>
where
    String: sqlx::Type<DB>,
{
    fn type_info() -> DB::TypeInfo {
        <String as sqlx::Type<DB>>::type_info()
    }

    fn compatible(ty: &DB::TypeInfo) -> bool {
        <String as sqlx::Type<DB>>::compatible(ty)
    }
}

impl<'q, DB: sqlx::Database, T: Serialize> sqlx::Encode<'q, DB> for JsonText<T>
where
    String: sqlx::Encode<'q, DB>,
{
    fn encode_by_ref(
        &self,
        buf: &mut <DB as sqlx::Database>::ArgumentBuffer,
    ) -> Result<sqlx::encode::IsNull, sqlx::error::BoxDynError> {
        let text = serde_json::to_string(&self.0)?;
        <String as sqlx::Encode<'q, DB>>::encode(text, buf)
    }
}

impl<'r, DB: sqlx::Database, T: DeserializeOwned> sqlx::Decode<'r, DB> for JsonText<T>
where
    String: sqlx::Decode<'r, DB>,
{
    fn decode(
        value: <DB as sqlx::Database>::ValueRef<'r>,
    ) -> Result<Self, sqlx::error::BoxDynError> {
        let text = <String as sqlx::Decode<'r, DB>>::decode(value)?;
        Ok(Self(serde_json::from_str(&text)?))
    }
}
