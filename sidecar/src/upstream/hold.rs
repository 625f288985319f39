//! A session that is being opened: it costs something, and nobody else knows of it yet.

/// Ends a session when it is dropped, unless somebody else sees to that.
#[must_use]
pub(crate) struct Hold(Option<Box<dyn FnOnce() + Send>>);

impl Hold {
    /// Where nothing has to be ended.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// Where this ends it.
    pub(super) fn of(end: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(end)))
    }

    /// The session goes on; somebody else ends it.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}
