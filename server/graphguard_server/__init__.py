"""GraphGuard's language server: a thin asyncio process that knows editors and leaves torch and proofs to two others."""
