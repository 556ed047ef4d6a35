export function Topic() { return <h1>Topic</h1>; }
