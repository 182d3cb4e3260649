//! Tokens: who may read and write which entities, and until when (G10).
//!
//! A token is a JWT signed with HS256. Its claims: `exp` (seconds since 1970), `entities` (patterns of what
//! may be read), `publish` (patterns of what may be written). In a pattern `*` stands for any run of characters.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde::Deserialize;

use crate::name::matches;

mod hs256;

/// What a token allows.
#[derive(Clone, Debug, Deserialize)]
pub struct Access {
    #[serde(default)]
    exp: Option<f64>,
    #[serde(default)]
    entities: Vec<String>,
    #[serde(default)]
    publish: Vec<String>,
}

impl Access {
    /// Allows nothing.
    pub fn nothing() -> Access {
        Access { exp: None, entities: Vec::new(), publish: Vec::new() }
    }

    fn everything() -> Access {
        let all = vec!["*".to_owned()];
        Access { exp: None, entities: all.clone(), publish: all }
    }

    /// Whether the entity may be read.
    pub fn may_read(&self, entity: &str) -> bool {
        self.entities.iter().any(|pattern| matches(pattern, entity))
    }

    /// Whether the entity may be written.
    pub fn may_write(&self, entity: &str) -> bool {
        self.publish.iter().any(|pattern| matches(pattern, entity))
    }

    /// The time that is left; `None` for ever.
    pub fn left(&self) -> Option<Duration> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Years beyond what a duration holds are for ever, too.
        self.exp.and_then(|exp| Duration::try_from_secs_f64(exp.max(0.0)).ok()).map(|exp| exp.saturating_sub(now))
    }
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is none, and one is needed.
    Missing,
    /// It is not signed by us, or not a token.
    Invalid,
    /// It was good once.
    Expired,
}

impl Refused {
    /// The error code.
    pub fn code(self) -> &'static str {
        match self {
            Refused::Missing | Refused::Invalid => "unauthorized",
            Refused::Expired => "token_expired",
        }
    }

    /// The error's sentence.
    pub fn message(self) -> &'static str {
        match self {
            Refused::Missing => "This gateway needs a token; send one.",
            Refused::Invalid => "The token is not valid here; get another one.",
            Refused::Expired => "The token has expired; get another one.",
        }
    }
}

/// Checks tokens.
pub enum Tokens {
    /// No token is needed; everything is allowed.
    Open,
    /// Tokens are signed with this secret.
    Signed(Box<DecodingKey>),
}

impl Tokens {
    /// Tokens signed with a secret.
    ///
    /// # Errors
    /// When the secret can't be used.
    pub fn signed(secret: &str) -> Result<Tokens, jsonwebtoken::errors::Error> {
        hs256::install();
        Ok(Tokens::Signed(Box::new(DecodingKey::from_secret(secret.as_bytes())?)))
    }

    /// What a token allows.
    ///
    /// # Errors
    /// When it allows nothing, and why.
    pub fn check(&self, token: Option<&str>) -> Result<Access, Refused> {
        let Tokens::Signed(key) = self else { return Ok(Access::everything()) };
        let token = token.ok_or(Refused::Missing)?;
        let mut validation = Validation::new(Algorithm::HS256);
        validation.leeway = 0;
        validation.validate_aud = false;
        match decode::<Access>(token, key, &validation) {
            Ok(data) => Ok(data.claims),
            Err(error) if matches!(error.kind(), ErrorKind::ExpiredSignature) => Err(Refused::Expired),
            Err(_) => Err(Refused::Invalid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use hmac::{Hmac, KeyInit, Mac};
    use serde_json::{Value, json};
    use sha2::Sha256;

    fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
    }

    fn token(algorithm: &str, secret: &str, claims: &Value) -> String {
        let head = URL_SAFE_NO_PAD.encode(json!({ "alg": algorithm, "typ": "JWT" }).to_string());
        let body = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(body.as_bytes());
        format!("{body}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }

    #[test]
    fn a_token_is_checked() {
        let tokens = Tokens::signed("secret").unwrap();
        let good = json!({ "exp": now() + 60, "entities": ["job/*"], "publish": [] });
        let table = [
            (None, Some(Refused::Missing)),
            (Some("x.y.z".to_owned()), Some(Refused::Invalid)),
            (Some(token("HS256", "secret", &good)), None),
            (Some(token("HS256", "other", &good)), Some(Refused::Invalid)),
            (Some(token("HS512", "secret", &good)), Some(Refused::Invalid)),
            (Some(token("none", "secret", &good)), Some(Refused::Invalid)),
            (Some(token("RS256", "secret", &good)), Some(Refused::Invalid)),
            (Some(token("HS256", "secret", &json!({ "exp": now() - 1 }))), Some(Refused::Expired)),
            (Some(token("HS256", "secret", &json!({ "entities": ["*"] }))), Some(Refused::Invalid)),
        ];
        for (token, refused) in table {
            assert_eq!(tokens.check(token.as_deref()).err(), refused, "{token:?}");
        }
        let access = tokens.check(Some(&token("HS256", "secret", &good))).unwrap();
        assert!(access.may_read("job/1") && !access.may_read("order/1") && !access.may_write("job/1"));
        assert!(access.left().unwrap() <= Duration::from_secs(60));
        assert!(Tokens::Open.check(None).unwrap().may_write("anything"));
    }
}
