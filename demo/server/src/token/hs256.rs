//! HS256 for jsonwebtoken: HMAC with SHA-256, and nothing else.

use std::sync::Once;

use hmac::{Hmac, KeyInit, Mac};
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use sha2::Sha256;
use signature::Verifier;

/// Tokens are only checked here; whoever signs them does so elsewhere.
static PROVIDER: CryptoProvider =
    CryptoProvider { signer_factory: no_signer, verifier_factory: verifier, key_utils: KeyUtils::new_unimplemented() };

/// Makes this the only way in which tokens of this process are checked.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Nobody else installs one, so it can't be there already.
        let _ = PROVIDER.install_default();
    });
}

struct Hs256(Hmac<Sha256>);

impl Verifier<Vec<u8>> for Hs256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let mut mac = self.0.clone();
        mac.update(message);
        // In constant time.
        mac.verify_slice(signature).map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if *algorithm != Algorithm::HS256 {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    let mac = Hmac::new_from_slice(key.try_get_as_bytes()?).map_err(|_| ErrorKind::InvalidKeyFormat)?;
    Ok(Box::new(Hs256(mac)))
}

fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::InvalidAlgorithm.into())
}
