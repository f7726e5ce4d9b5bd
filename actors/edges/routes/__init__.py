"""The routes by subject: sessions, messages, streams, and the system itself. Each is an async function of an `Ask`."""
