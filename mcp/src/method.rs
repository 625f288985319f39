//! The methods that clients and servers may use, which revisions have them, and what each of them is about.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/schema>

use crate::revision::{LogLevels, Revision, Tasks};

/// A request's method. What is not listed here is answered with "unknown method" and never reaches a server: access
/// could not be decided on a request whose target nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are named after the methods")]
pub enum Method {
    Initialize,
    Ping,
    ToolsList,
    ToolsCall,
    PromptsList,
    PromptsGet,
    ResourcesList,
    ResourcesTemplatesList,
    ResourcesRead,
    ResourcesSubscribe,
    ResourcesUnsubscribe,
    CompletionComplete,
    LoggingSetLevel,
    ServerDiscover,
    SubscriptionsListen,
    TasksGet,
    TasksUpdate,
    TasksCancel,
    TasksResult,
    TasksList,
}

/// A notification of a client.
///
/// A client of 2025-11-25 may have tasks too: what its server asked, for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are named after the methods")]
pub enum NotificationMethod {
    Initialized,
    Cancelled,
    Progress,
    RootsListChanged,
    TasksStatus,
}

/// A notification of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are named after the methods")]
pub enum ServerNotification {
    Cancelled,
    Progress,
    Message,
    ResourcesUpdated,
    ResourcesListChanged,
    ToolsListChanged,
    PromptsListChanged,
    ElicitationComplete,
    SubscriptionsAcknowledged,
}

/// A request of a server to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are named after the methods")]
pub enum ServerRequest {
    Ping,
    SamplingCreateMessage,
    ElicitationCreate,
    RootsList,
}

/// Where a request's target is to be found in its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// It has none.
    Nothing,
    /// A tool, by `name`.
    Tool,
    /// A prompt, by `name`.
    Prompt,
    /// A resource, by `uri`.
    Resource,
    /// A prompt or a resource template, by `ref`.
    Reference,
    /// A task, by `taskId`.
    Task,
}

/// The lists that a server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// `tools/list`.
    Tools,
    /// `prompts/list`.
    Prompts,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    ResourceTemplates,
}

// === impl Method ===

impl Method {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::Initialize,
        Self::Ping,
        Self::ToolsList,
        Self::ToolsCall,
        Self::PromptsList,
        Self::PromptsGet,
        Self::ResourcesList,
        Self::ResourcesTemplatesList,
        Self::ResourcesRead,
        Self::ResourcesSubscribe,
        Self::ResourcesUnsubscribe,
        Self::CompletionComplete,
        Self::LoggingSetLevel,
        Self::ServerDiscover,
        Self::SubscriptionsListen,
        Self::TasksGet,
        Self::TasksUpdate,
        Self::TasksCancel,
        Self::TasksResult,
        Self::TasksList,
    ];

    /// The method of that name in the revisions that have a handshake.
    pub fn parse(name: &str) -> Option<Self> {
        Self::of(Revision::NEWEST_WITH_INITIALIZE, name)
    }

    /// The method of that name in a revision.
    pub fn of(revision: Revision, name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name && method.is_in(revision))
    }

    /// Whether a revision has this method, in its core or in an extension.
    pub fn is_in(self, revision: Revision) -> bool {
        let has = revision.features();
        match self {
            Self::ToolsList
            | Self::ToolsCall
            | Self::PromptsList
            | Self::PromptsGet
            | Self::ResourcesList
            | Self::ResourcesTemplatesList
            | Self::ResourcesRead
            | Self::CompletionComplete => true,
            Self::Initialize => has.handshake,
            Self::Ping => has.ping,
            Self::ResourcesSubscribe | Self::ResourcesUnsubscribe => !has.listen,
            Self::LoggingSetLevel => has.log_levels == LogLevels::PerSession,
            Self::ServerDiscover => !has.handshake,
            Self::SubscriptionsListen => has.listen,
            Self::TasksGet | Self::TasksCancel => has.tasks != Tasks::None,
            Self::TasksUpdate => has.tasks == Tasks::Extension,
            Self::TasksResult | Self::TasksList => has.tasks == Tasks::Core,
        }
    }

    /// Whether a result of this method may say how long it can be kept.
    pub fn is_cacheable(self) -> bool {
        self == Self::ServerDiscover || self == Self::ResourcesRead || self.list().is_some()
    }

    /// Whether a server may ask back before it answers, in the revisions where a result says so.
    pub fn may_need_input(self) -> bool {
        matches!(self, Self::ToolsCall | Self::PromptsGet | Self::ResourcesRead)
    }

    /// The method's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Ping => "ping",
            Self::ToolsList => "tools/list",
            Self::ToolsCall => "tools/call",
            Self::PromptsList => "prompts/list",
            Self::PromptsGet => "prompts/get",
            Self::ResourcesList => "resources/list",
            Self::ResourcesTemplatesList => "resources/templates/list",
            Self::ResourcesRead => "resources/read",
            Self::ResourcesSubscribe => "resources/subscribe",
            Self::ResourcesUnsubscribe => "resources/unsubscribe",
            Self::CompletionComplete => "completion/complete",
            Self::LoggingSetLevel => "logging/setLevel",
            Self::ServerDiscover => "server/discover",
            Self::SubscriptionsListen => "subscriptions/listen",
            Self::TasksGet => "tasks/get",
            Self::TasksUpdate => "tasks/update",
            Self::TasksCancel => "tasks/cancel",
            Self::TasksResult => "tasks/result",
            Self::TasksList => "tasks/list",
        }
    }

    /// What a request of this method is about.
    pub fn subject(self) -> Subject {
        match self {
            Self::ToolsCall => Subject::Tool,
            Self::PromptsGet => Subject::Prompt,
            Self::ResourcesRead | Self::ResourcesSubscribe | Self::ResourcesUnsubscribe => Subject::Resource,
            Self::CompletionComplete => Subject::Reference,
            Self::TasksGet | Self::TasksUpdate | Self::TasksCancel | Self::TasksResult => Subject::Task,
            Self::Initialize
            | Self::Ping
            | Self::ToolsList
            | Self::PromptsList
            | Self::ResourcesList
            | Self::ResourcesTemplatesList
            | Self::LoggingSetLevel
            | Self::ServerDiscover
            | Self::SubscriptionsListen
            | Self::TasksList => Subject::Nothing,
        }
    }

    /// Whether it is about tasks, which are not the same in all revisions that have them.
    pub fn is_about_tasks(self) -> bool {
        self.subject() == Subject::Task || self == Self::TasksList
    }

    /// The list that this method asks for.
    pub fn list(self) -> Option<List> {
        match self {
            Self::ToolsList => Some(List::Tools),
            Self::PromptsList => Some(List::Prompts),
            Self::ResourcesList => Some(List::Resources),
            Self::ResourcesTemplatesList => Some(List::ResourceTemplates),
            _ => None,
        }
    }
}

// === impl NotificationMethod ===

impl NotificationMethod {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Initialized, Self::Cancelled, Self::Progress, Self::RootsListChanged, Self::TasksStatus];

    /// The notification of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }

    /// The notification's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initialized => "notifications/initialized",
            Self::Cancelled => "notifications/cancelled",
            Self::Progress => "notifications/progress",
            Self::RootsListChanged => "notifications/roots/list_changed",
            Self::TasksStatus => "notifications/tasks/status",
        }
    }
}

// === impl ServerNotification ===

impl ServerNotification {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Cancelled,
        Self::Progress,
        Self::Message,
        Self::ResourcesUpdated,
        Self::ResourcesListChanged,
        Self::ToolsListChanged,
        Self::PromptsListChanged,
        Self::ElicitationComplete,
        Self::SubscriptionsAcknowledged,
    ];

    /// The notification of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }

    /// The notification's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "notifications/cancelled",
            Self::Progress => "notifications/progress",
            Self::Message => "notifications/message",
            Self::ResourcesUpdated => "notifications/resources/updated",
            Self::ResourcesListChanged => "notifications/resources/list_changed",
            Self::ToolsListChanged => "notifications/tools/list_changed",
            Self::PromptsListChanged => "notifications/prompts/list_changed",
            Self::ElicitationComplete => "notifications/elicitation/complete",
            Self::SubscriptionsAcknowledged => "notifications/subscriptions/acknowledged",
        }
    }
}

// === impl ServerRequest ===

impl ServerRequest {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Ping, Self::SamplingCreateMessage, Self::ElicitationCreate, Self::RootsList];

    /// The request of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }

    /// The request's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::SamplingCreateMessage => "sampling/createMessage",
            Self::ElicitationCreate => "elicitation/create",
            Self::RootsList => "roots/list",
        }
    }
}

// === impl List ===

impl List {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::ResourceTemplates];

    /// The method that asks for it.
    pub fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::ResourceTemplates => Method::ResourcesTemplatesList,
        }
    }

    /// The member of the result that holds the entries.
    pub fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
        }
    }

    /// The member of an entry that a request would name it by.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::ResourceTemplates => "uriTemplate",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for method in Method::ALL {
            for revision in Revision::ALL {
                assert_eq!(Method::of(revision, method.as_str()).is_some(), method.is_in(revision));
            }
            assert!(Revision::ALL.into_iter().any(|revision| method.is_in(revision)), "{method:?}");
        }
        for method in ServerNotification::ALL {
            assert_eq!(ServerNotification::parse(method.as_str()), Some(method));
        }
        for method in ServerRequest::ALL {
            assert_eq!(ServerRequest::parse(method.as_str()), Some(method));
        }
        for method in NotificationMethod::ALL {
            assert_eq!(NotificationMethod::parse(method.as_str()), Some(method));
        }
        for list in List::ALL {
            assert_eq!(list.method().list(), Some(list));
        }
        assert_eq!(Method::parse("tasks/update"), None);
        assert_eq!(Method::of(Revision::V2025_06_18, "tasks/get"), None);
        assert_eq!(Method::parse("server/discover"), None);
        assert_eq!(Method::of(Revision::V2026_07_28, "initialize"), None);
    }
}
