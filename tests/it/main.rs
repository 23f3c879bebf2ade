mod architecture;
mod store;
mod support;
