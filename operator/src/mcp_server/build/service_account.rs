//! The ServiceAccount of servers that name none: an identity without rights, and without a token.

use k8s_openapi::api::core::v1::ServiceAccount;

use super::labelled;
use crate::mcp_server::validate::ValidatedServer;

pub(super) fn build(server: &ValidatedServer) -> Option<ServiceAccount> {
    if server.pod.service_account.is_some() {
        return None;
    }
    Some(ServiceAccount {
        metadata: labelled(server, server.names.service_account()),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    })
}
