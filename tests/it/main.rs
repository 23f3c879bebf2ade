mod emulator;
mod support;
