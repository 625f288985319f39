//! The readers of an inventory.

use std::time::SystemTime;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use longshore_sidecar_config::Config;
use serde_json::{Value, json};

/// A cluster that signs tokens.
pub(crate) struct Cluster {
    key: EncodingKey,
    jwk: Value,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let rng = aws_lc_rs::rand::SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &rng).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref()).unwrap();
        let point = pair.public_key().as_ref();
        let coordinate = |bytes: &[u8]| base64url(bytes);
        let jwk = json!({
            "kty": "EC", "crv": "P-256", "kid": "k1", "alg": "ES256", "use": "sig",
            "x": coordinate(&point[1..33]), "y": coordinate(&point[33..65]),
        });
        Self { key: EncodingKey::from_ec_der(pkcs8.as_ref()), jwk }
    }

    /// Makes this cluster's readers the readers of a sidecar. A key of a kind that nobody knows does not matter.
    pub(crate) fn trust(&self, config: &mut Config) {
        config.inventory.jwks = json!({"keys": [{"kty": "XYZ", "kid": "k0"}, self.jwk]});
    }

    pub(crate) fn token(&self, edit: impl FnOnce(&mut Value)) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({
            "iss": "https://cluster.example", "aud": ["longshore-sidecar"],
            "sub": "system:serviceaccount:longshore:operator", "exp": now + 600, "nbf": now, "iat": now,
        });
        edit(&mut claims);
        let header = Header { kid: Some("k1".to_owned()), ..Header::new(Algorithm::ES256) };
        encode(&header, &claims, &self.key).unwrap()
    }
}

fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let word =
            group.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..=group.len() {
            text.push(char::from(DIGITS[(word >> (18 - 6 * digit)) as usize & 63]));
        }
    }
    text
}
