//! The cluster's own authority, and who is who. Made anew for each cluster, in milliseconds.

use std::fs;
use std::io;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_RSA_SHA256, RsaKeySize,
};

use super::kubeconfig::{self, Identity};
use super::spec::{API_SERVICE_ADDRESS, NODE_ADDRESS, NODE_NAME, Spec};

/// Why a cluster's certificates were not made.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// They could not be made.
    #[error("cannot make certificates")]
    Make(#[from] rcgen::Error),
    /// They could not be written.
    #[error("cannot write certificates")]
    Write(#[from] io::Error),
}

/// Someone who has a certificate.
struct Party<'a> {
    file: &'a str,
    common_name: &'a str,
    organization: Option<&'a str>,
    /// The names and addresses that it serves at; none for those that only ask.
    serves: &'a [String],
}

/// Writes every certificate, key and kubeconfig of the cluster.
pub(crate) fn write(spec: &Spec) -> Result<(), CertificateError> {
    let authority = authority()?;
    fs::write(spec.pki("ca.crt"), authority.pem())?;
    fs::write(spec.pki("ca.key"), authority.key().serialize_pem())?;
    // RSA, as nearly every cluster has: whoever checks ServiceAccount tokens is tested with what it will meet.
    let accounts = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
    fs::write(spec.pki("service-account.key"), accounts.serialize_pem())?;

    let node = format!("system:node:{NODE_NAME}");
    let api: Vec<String> = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
        .map(str::to_owned)
        .into_iter()
        .chain([spec.address, API_SERVICE_ADDRESS, NODE_ADDRESS].map(|address| address.to_string()))
        .collect();
    let kubelet = [NODE_NAME.to_owned(), NODE_ADDRESS.to_string()];
    let party = |file, common_name, organization, serves| Party { file, common_name, organization, serves };
    let parties = [
        party("apiserver", "kube-apiserver", None, &api[..]),
        party("kubelet", &node, Some("system:nodes"), &kubelet[..]),
        party("admin", "admin", Some("system:masters"), &[]),
        party("kube-controller-manager", "system:kube-controller-manager", None, &[]),
        party("kube-scheduler", "system:kube-scheduler", None, &[]),
        party("kube-proxy", "system:kube-proxy", None, &[]),
        party("front-proxy-client", "front-proxy-client", None, &[]),
    ];
    for party in &parties {
        let (certificate, key) = certify(&authority, party)?;
        fs::write(spec.pki(&format!("{}.crt", party.file)), &certificate)?;
        fs::write(spec.pki(&format!("{}.key", party.file)), &key)?;
        let identity = Identity { authority: &authority.pem(), certificate: &certificate, key: &key };
        fs::write(spec.config(&format!("{}.kubeconfig", party.file)), kubeconfig::to_yaml(spec, &identity))?;
    }
    Ok(())
}

impl Spec {
    /// Adds a key that ServiceAccount tokens may be signed with, behind those that there are. An API server that starts
    /// after that takes it.
    pub fn add_account_key(&self) -> Result<(), CertificateError> {
        let another = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
        let file = self.pki("service-account.key");
        let keys = fs::read_to_string(&file)? + &another.serialize_pem();
        Ok(fs::write(file, keys)?)
    }
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "longshore-e2e");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn certify(
    authority: &CertifiedIssuer<'_, KeyPair>,
    party: &Party<'_>,
) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(party.serves)?;
    params.distinguished_name.push(DnType::CommonName, party.common_name);
    if let Some(organization) = party.organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if !party.serves.is_empty() {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    Ok((certificate.pem(), key.serialize_pem()))
}
