//! The methods that clients may use, and what each of them is about.

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
}

/// A notification of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are named after the methods")]
pub enum NotificationMethod {
    Initialized,
    Cancelled,
    Progress,
    RootsListChanged,
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
    pub const ALL: [Self; 13] = [
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
    ];

    /// The method of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
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
        }
    }

    /// What a request of this method is about.
    pub fn subject(self) -> Subject {
        match self {
            Self::ToolsCall => Subject::Tool,
            Self::PromptsGet => Subject::Prompt,
            Self::ResourcesRead | Self::ResourcesSubscribe | Self::ResourcesUnsubscribe => Subject::Resource,
            Self::CompletionComplete => Subject::Reference,
            Self::Initialize
            | Self::Ping
            | Self::ToolsList
            | Self::PromptsList
            | Self::ResourcesList
            | Self::ResourcesTemplatesList
            | Self::LoggingSetLevel => Subject::Nothing,
        }
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
    pub const ALL: [Self; 4] = [Self::Initialized, Self::Cancelled, Self::Progress, Self::RootsListChanged];

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
            assert_eq!(Method::parse(method.as_str()), Some(method));
        }
        for method in NotificationMethod::ALL {
            assert_eq!(NotificationMethod::parse(method.as_str()), Some(method));
        }
        for list in List::ALL {
            assert_eq!(list.method().list(), Some(list));
        }
        assert_eq!(Method::parse("tasks/get"), None);
    }
}
