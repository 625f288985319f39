//! Sessions that survive: what clients see while the pods that serve them come, go, die and lose each other. Each row
//! has a short form, which runs with all other tests, and a full one (`make soak`), which takes its time and writes down
//! what it saw.

mod api_server;
mod deleted;
mod drained;
mod hostile;
mod idle;
mod keys;
mod killed;
mod many;
mod partition;
mod random;
mod rolling;
mod row;
mod scaled;
mod sdk;
mod served;
mod streams;
mod upgraded;
mod way;
