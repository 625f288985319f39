//! How replicas know each other: TLS 1.3 in which both sides show a raw public key (RFC 7250) that is derived from a
//! key of the server's sessions. Whoever can open its session ids is one of its replicas, and nobody else is. There
//! are no certificates, no names and no dates; which pod is at the other end, each request says by itself.

use std::sync::Arc;

use aws_lc_rs::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    ServerConfig, SignatureScheme,
};
use thiserror::Error as ThisError;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The seed of a pair of keys.
pub(crate) type Seed = [u8; 32];

/// Both ends of connections between replicas, for as long as the session keys are the same.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) connector: TlsConnector,
    pub(crate) acceptor: TlsAcceptor,
    /// The public key that is shown.
    shown: Arc<[u8]>,
    replicas: Arc<Replicas>,
}

/// The keys cannot be used.
#[derive(Debug, ThisError)]
pub(crate) enum TlsError {
    #[error("a key between replicas cannot be made")]
    Key,
    #[error("TLS between replicas cannot be set up")]
    Setup(#[from] Error),
}

impl Tls {
    /// Shows the key of the first seed, and accepts those of all of them.
    pub(crate) fn new(own: &Seed, accepted: &[Seed]) -> Result<Self, TlsError> {
        // One suite is enough: both ends are of Longshore, and every machine of a cluster is fast at this one.
        let provider = Arc::new(CryptoProvider {
            cipher_suites: vec![provider::cipher_suite::TLS13_AES_128_GCM_SHA256],
            ..provider::default_provider()
        });
        let own = key_of(own)?;
        let public =
            |key: &Arc<dyn SigningKey>| key.public_key().map(|key| key.to_vec()).ok_or(TlsError::Key);
        let shown: Arc<[u8]> = public(&own)?.into();
        let accepted = accepted.iter().map(|seed| public(&key_of(seed)?)).collect::<Result<_, _>>()?;
        let replicas = Arc::new(Replicas { accepted, provider: provider.clone() });
        let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(shown.to_vec())], own));

        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(replicas.clone())
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key.clone())));
        client.enable_sni = false;
        // A resumed connection would skip the look at the keys, which may be others by then.
        client.resumption = Resumption::disabled();

        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(replicas.clone())
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
        server.send_tls13_tickets = 0;
        Ok(Self { connector: Arc::new(client).into(), acceptor: Arc::new(server).into(), shown, replicas })
    }

    /// Whether a connection that was made with these keys may go on with the others.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.shown == other.shown && self.replicas.accepted == other.replicas.accepted
    }

    /// Whether a replica that has shown this key is one still.
    pub(crate) fn accepts(&self, shown: &[u8]) -> bool {
        self.replicas.accepted.iter().any(|accepted| accepted == shown)
    }
}

fn key_of(seed: &Seed) -> Result<Arc<dyn SigningKey>, TlsError> {
    let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| TlsError::Key)?;
    let pkcs8 = pair.to_pkcs8v1().map_err(|_| TlsError::Key)?;
    Ok(provider::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_ref()))?)
}

/// Accepts replicas and nobody else, at both ends.
#[derive(Debug)]
struct Replicas {
    /// Public keys, each as a SubjectPublicKeyInfo.
    accepted: Vec<Vec<u8>>,
    provider: Arc<CryptoProvider>,
}

impl Replicas {
    fn check(&self, shown: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), Error> {
        // Public keys: there is nothing to learn from how long this takes.
        if others.is_empty() && self.accepted.iter().any(|accepted| accepted == shown.as_ref()) {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(shown.as_ref()),
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }
}

impl ServerCertVerifier for Replicas {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown, others).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Replicas {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown, others).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rustls::pki_types::IpAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn seed(number: u8) -> Seed {
        [number; 32]
    }

    /// Whether a client gets a byte through to a server and one back.
    async fn talk(client: &Tls, server: &Tls) -> bool {
        let (near, far) = duplex(64 * 1024);
        let answer = async {
            let mut stream = server.acceptor.accept(far).await?;
            let byte = stream.read_u8().await?;
            stream.write_u8(byte).await?;
            stream.shutdown().await
        };
        let ask = async {
            let name = ServerName::IpAddress(IpAddr::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST)));
            let mut stream = client.connector.connect(name, near).await?;
            stream.write_u8(7).await?;
            stream.read_u8().await
        };
        let (answered, asked) = tokio::join!(answer, ask);
        answered.is_ok() && asked.is_ok_and(|byte| byte == 7)
    }

    #[tokio::test]
    async fn only_replicas_with_an_accepted_key_talk() {
        let tls = |own: u8, accepted: &[u8]| {
            let accepted: Vec<_> = accepted.iter().map(|number| seed(*number)).collect();
            Tls::new(&seed(own), &accepted).unwrap()
        };
        for (client, server, expected) in [
            (tls(1, &[1]), tls(1, &[1]), true),
            // During a rotation both keys are accepted, whichever is shown.
            (tls(1, &[1, 2]), tls(2, &[1, 2]), true),
            (tls(2, &[2]), tls(2, &[1, 2]), true),
            // Strangers, seen from each side.
            (tls(3, &[1, 3]), tls(1, &[1]), false),
            (tls(1, &[1]), tls(3, &[1, 3]), false),
            (tls(3, &[3]), tls(1, &[1]), false),
        ] {
            assert_eq!(talk(&client, &server).await, expected);
        }
    }
}
