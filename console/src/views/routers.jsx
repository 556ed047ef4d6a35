export function Routers() { return <h1>Routers</h1>; }
