//! What is thrown at, one module for each kind of reader.

mod calls;
mod headers;
mod lists;
mod messages;
mod packets;
mod streams;
mod translations;

use crate::Target;

macro_rules! targets {
    ($($module:ident::$name:ident),+ $(,)?) => {
        /// All of them.
        pub const TARGETS: [Target; [$(stringify!($name)),+].len()] =
            [$(Target { name: stringify!($name), run: $module::$name }),+];
    };
}

targets![
    messages::envelope,
    messages::batch,
    messages::incoming,
    messages::object,
    headers::values,
    headers::arguments,
    streams::events,
    streams::endpoint,
    streams::lines,
    lists::filter,
    lists::subscriptions,
    lists::levels,
    translations::requests,
    translations::responses,
    translations::results,
    translations::errors,
    translations::notifications,
    translations::questions,
    translations::handshakes,
    translations::tools,
    calls::numbers,
    calls::parked,
    calls::rounds,
    packets::capsule,
    packets::replicas,
    packets::shim,
];
